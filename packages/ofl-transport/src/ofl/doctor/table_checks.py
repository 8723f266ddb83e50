"""The checks of a host that is to hold tables in its memory.  Pure."""

from ofl.doctor.findings import Check, Facts, Verdict, failed, passed, skipped, warned

FREE_MEMORY = "free {mib} MiB, or serve fewer tables: engram-remote serve says what each needs"
MORE_HUGE_PAGES = "sysctl -w vm.nr_hugepages={pages}, and the same in /etc/sysctl.d for the next boot"
NO_SWAP = "swapoff -a, and take the swap lines out of /etc/fstab"


def tables_memory(facts: Facts) -> Verdict:
    """The tables fit into what is free."""
    memory = facts["memory"]
    if not memory["tables_mib"]:
        return skipped("no tables are to be held here (--tables-mib)")
    if memory["huge_pages"]:
        return skipped("the tables are to lie in huge pages: see huge-pages")
    free = memory["MemAvailable"] // 1024
    missing = memory["tables_mib"] - free
    if missing > 0:
        seen = f"{memory['tables_mib']} MiB are needed, and {free} are available"
        return failed(seen, FREE_MEMORY, mib=missing)
    return passed(f"{free} MiB are available, and {memory['tables_mib']} are needed")


def huge_pages(facts: Facts) -> Verdict:
    """As many as the tables need are free."""
    memory = facts["memory"]
    if not (memory["tables_mib"] and memory["huge_pages"]):
        return skipped("no tables are to lie in huge pages (--huge-pages)")
    size_kib = memory["Hugepagesize"]
    if size_kib <= 0:
        return skipped("the kernel does not say how large a huge page is")
    needed = -(-memory["tables_mib"] * 1024 // size_kib)
    if memory["HugePages_Free"] < needed:
        seen = f"{needed} huge pages of {size_kib} KiB are needed, and {memory['HugePages_Free']} are free"
        return failed(seen, MORE_HUGE_PAGES, pages=needed)
    return passed(f"{memory['HugePages_Free']} huge pages are free, and {needed} are needed")


def swap(facts: Facts) -> Verdict:
    """A row that was swapped out comes too late."""
    memory = facts["memory"]
    if not memory["tables_mib"]:
        return skipped("no tables are to be held here (--tables-mib)")
    if memory["huge_pages"]:
        return passed("huge pages are never swapped out")
    if memory["SwapTotal"] > 0:
        seen = f"{memory['SwapTotal'] // 1024} MiB of swap are on: rows that were swapped out come late"
        return warned(seen, NO_SWAP)
    return passed("no swap is on")


TABLE_CHECKS = (
    Check("tables-memory", "the tables fit into what is available", (FREE_MEMORY,), tables_memory),
    Check("huge-pages", "as many huge pages as the tables need are free", (MORE_HUGE_PAGES,), huge_pages),
    Check("swap", "no table can be swapped out; a warning", (NO_SWAP,), swap),
)
