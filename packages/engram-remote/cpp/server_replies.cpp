// What leaves the server: rows, refusals, and the figures that STATS shows.

#include <cstdio>
#include <string>

#include "checksum.hpp"
#include "server.hpp"

namespace engram {

namespace {

constexpr std::size_t kTablesShown = 256;  // STATS has an upper limit, and nobody reads more

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

// Appended and not added in front: of that, GCC 12 warns where it sees all of std::string.
std::string braced(const std::string& text) { return std::string("{").append(text).append("}"); }

std::string member(const char* name, std::uint64_t value) { return quoted(name) + ":" + std::to_string(value); }

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string table_text(const Table& table) {
  return braced(member("layer", table.layer) + "," + member("rank", table.rank) + "," + member("ranks", table.ranks) + "," +
                member("row_start", table.rows.row_start) + "," + member("row_end", table.rows.row_end));
}

std::string tables_text(const Tables& tables) {
  std::string text;
  for (const auto& table : tables.all()) {
    if (&table - tables.all().data() == static_cast<std::ptrdiff_t>(kTablesShown)) break;
    text.append(text.empty() ? "" : ",").append(table_text(*table));
  }
  return "[" + text + "]";
}

std::string counters_text(const ServerCounters& counters) {
  std::string text;
  for (std::size_t i = 0; i < ServerCounters::kCount; ++i)
    text.append(i == 0 ? "" : ",").append(member(ServerCounters::name(i), counters.value(i)));
  return "{" + text + "}";
}

std::string transport_text(ofl_server* server) {
  std::uint64_t values[OFL_COUNTERS];
  ofl().server_counters(server, values);
  std::string text;
  for (std::uint32_t i = 0; i < OFL_COUNTERS && ofl().counter_name(i) != nullptr; ++i)
    text.append(i == 0 ? "" : ",").append(member(ofl().counter_name(i), values[i]));
  return "{" + text + "}";
}

}  // namespace

// By the last thread that had a piece of it, or by the receiver.
void Server::finish(Lookup& lookup) {
  if (lookup.bad_id.load(std::memory_order_relaxed) != kAllRowsFound) {
    const Fault fault = lookup.bad_id_fault();
    buffers_.put_back(lookup.buffer);
    lookup.session->unanswered.fetch_sub(1, std::memory_order_relaxed);
    refuse(lookup.connection, lookup.sequence, {wire::Op::lookup, lookup.batch}, fault);
    return;
  }
  send_rows(lookup);
}

void Server::send_rows(Lookup& lookup) {
  const auto gather_ns = static_cast<std::uint64_t>(now_ns() - lookup.begun);
  std::byte* const base = lookup.buffer->base;
  const bool summed = (lookup.flags & wire::kChecksum) != 0;
  const wire::LookupReply record{
      .flags = lookup.flags,
      .rows = lookup.rows,
      .checksum = summed ? checksum(base + wire::kHeadBytes, lookup.reply_bytes - wire::kHeadBytes, lookup.asked_sum) : 0,
      .gather_ns = gather_ns,
      .reserved0 = 0};
  store_lookup_head(lookup.batch, record, lookup.reply_bytes, base);
  counters_.add(ServerCounter::lookups);
  counters_.add(ServerCounter::rows, lookup.rows);
  counters_.add(ServerCounter::rows_absent, lookup.absent());
  counters_.add(ServerCounter::bytes, lookup.reply_bytes);
  counters_.add(ServerCounter::gather_ns, gather_ns);
  lookup.session->unanswered.fetch_sub(1, std::memory_order_relaxed);
  const ofl_part part{base, lookup.reply_bytes};
  const std::int32_t status = ofl().server_reply(transport_.get(), lookup.connection, lookup.sequence, &part, 1,
                                                 lookup.buffer->buffer.get());
  buffers_.sent(lookup.buffer);
  if (status != OFL_OK) counters_.add(ServerCounter::replies_lost);
}

void Server::refuse(std::uint64_t connection, std::uint64_t sequence, const Address& to, const Fault& fault) {
  counters_.refused(fault.code);
  send(connection, sequence, refusal(to, fault));
}

void Server::send(std::uint64_t connection, std::uint64_t sequence, const Message& message) {
  const ofl_part part{message.data(), message.size()};
  const std::int32_t status = ofl().server_reply(transport_.get(), connection, sequence, &part, 1, nullptr);
  if (status == OFL_OK) return;
  counters_.add(ServerCounter::replies_lost);
  // A call that takes not even a refusal would never end.
  if (status == OFL_TOO_LARGE) static_cast<void>(ofl().server_disconnect(transport_.get(), connection, "no room for a refusal"));
}

std::string Server::statistics() const {
  const double uptime_s = static_cast<double>(now_ns() - created_) / static_cast<double>(kSecond);
  char uptime[32];
  std::snprintf(uptime, sizeof uptime, "%.1f", uptime_s);
  const std::string limits = braced(member("batch_rows_max", options_.batch_rows_max) + "," +
                                    member("calls_max", options_.calls_max) + "," +
                                    member("connections_max", options_.connections_max) + "," +
                                    member("reply_buffers", options_.reply_buffers));
  return "{\"service\":\"engram\"," + member("version", wire::kVersion) + ",\"boot\":" + quoted(hexadecimal(boot_)) +
         ",\"identity\":" + quoted(engram::hexadecimal(tables_.identity())) + ",\"uptime_s\":" + uptime +
         ",\"draining\":" + (stop_at_.load(std::memory_order_relaxed) != 0 ? "true" : "false") + "," +
         member("columns", options_.columns) + "," + member("scales", options_.scales) + "," +
         member("gather_threads", options_.gather_threads) + "," + member("table_count", tables_.all().size()) +
         ",\"limits\":" + limits + ",\"tables\":" + tables_text(tables_) + ",\"counters\":" + counters_text(counters_) +
         ",\"transport\":" + transport_text(transport_.get()) + "}";
}

}  // namespace engram
