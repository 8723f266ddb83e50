"""The commands of `ofl`, one module each: `add` declares its arguments and what runs."""
