"""Receipts, checks and the gate of Spark Offload: may exactly these bits serve on that platform?"""

__version__ = "0.1.0"
