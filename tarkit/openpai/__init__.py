"""Jobs of OpenPAI: job JSON (version 1, to release 0.17) and job YAML (protocol 2).

They are read, checked, converted and submitted as OpenPAI's JavaScript libraries would read them.
"""
