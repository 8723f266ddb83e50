"""Spark Offload's transport: request/reply over direct links, and the service contracts under `ofl.contract`."""

__version__ = "0.1.0"
