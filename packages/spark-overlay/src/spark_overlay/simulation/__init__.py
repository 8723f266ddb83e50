"""Fake twins of what lies outside the overlay: the worker and the transport.  For tests and simulations only.

Deterministic, without clocks, sockets or threads of their own.
"""
