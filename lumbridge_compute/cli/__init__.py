"""The command line: arguments, rendering, exit codes."""
