"""Control without a restart: what operators ask of a running engine in a file, and what is in effect.

    record   what the file says: one typed model
    files    reading it as an engine may, replacing it as a command does
    reader   whether it changed: a stat, and a reading only where it did
    ordering an order, written; and waiting until an engine's figures show it
    keeper   what is in effect, and who brings it into effect when
    command  `spark-overlay pause|resume|rearm`

Rank 0 alone reads the file.  The other ranks learn of it as they learn of everything: by the words of each round.
"""
