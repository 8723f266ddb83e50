#include "server_counters.hpp"

namespace engram {

namespace {

constexpr std::array<const char*, ServerCounters::kCount> kNames = {
    "connections",     "connections_open", "opens",           "lookups",          "lookups_inline",  "lookups_waited",
    "rows",            "rows_absent",      "bytes",           "gather_ns",        "queue_max",       "stats",
    "replies_lost",    "refused_bad_message", "refused_version", "refused_identity", "refused_no_table", "refused_shape",
    "refused_not_open", "refused_bad_id",  "refused_limit",   "refused_draining"};

}  // namespace

const char* ServerCounters::name(std::size_t index) noexcept { return index < kCount ? kNames[index] : nullptr; }

}  // namespace engram
