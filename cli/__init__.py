"""The command-line programs: parse, call the library, turn errors into exit codes."""
