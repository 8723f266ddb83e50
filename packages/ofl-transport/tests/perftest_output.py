"""What perftest's programs print: the one row of results among headings and addresses."""


def result_row(output: str) -> list[float]:
    """The numbers of the row, bytes and iterations first.  Raises AssertionError where there is no such row."""
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 4 and all(_is_number(word) for word in words):
            return [float(word) for word in words]
    raise AssertionError(f"no row of results in:\n{output}")


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdigit()
