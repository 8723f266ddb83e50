"""Running checks: plan, window, ledger, supervisor, arms, publication.  Judges nothing by itself."""
