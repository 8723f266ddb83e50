"""Spark Offload's transport: request/reply over direct links; the service contracts are in `ofl.contract`."""

__version__ = "0.1.0"
