"""One module per command of `engram-remote`; each holds a click command named `command`."""
