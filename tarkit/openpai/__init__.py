"""Jobs of OpenPAI: job JSON (version 1, to release 0.17) and job YAML (protocol 2).

Read, checked, converted and submitted.

OpenPAI reads both with libraries of JavaScript; what they accept, and what they make of it, is what
counts here.
"""
