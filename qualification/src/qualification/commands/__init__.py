"""Commands of `qualify` on keys, receipts, subjects, policies and schemas.  Exit status: 0 yes, 1 no, 2 unusable."""
