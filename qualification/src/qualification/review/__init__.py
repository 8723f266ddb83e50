"""What a person reads before promoting: one static page from receipts, evidence, subjects and a policy.

`gather` reads and verifies, `measure` takes figures from evidence, `plots` draws them, `content` puts words to all of
it, `page` makes the HTML.  Whatever does not verify is never shown as a verdict.
"""
