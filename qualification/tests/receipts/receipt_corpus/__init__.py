"""One sound run, made by code, and what becomes of it when one thing is wrong with it."""
