"""The commands of `python -m tracing`, one module each: `add_to` adds it to the parser, `run` runs it and returns the
exit status (None for 0). What a command shows is made elsewhere."""
