// What the receiver makes of a request: answers OPEN and STATS, refuses, and gives lookups to whoever is fastest.

#include <memory>
#include <utility>

#include "checksum.hpp"
#include "server.hpp"

namespace engram {

namespace {

using wire::Code;

// Lookups of at most so many rows are gathered by the receiver itself.  Handing one to another thread was measured to cost 65
// to 90 us, gathering this many rows 120 us, so that two threads gain nothing below it (docs/engram/server.md); and while the
// receiver gathers nobody is heard, so it takes no more.
constexpr std::uint32_t kInlineRows = 1024;

Bytes bytes_of(const ofl_event& event) noexcept {
  return {static_cast<const std::byte*>(event.body), static_cast<std::size_t>(event.body_bytes)};
}

}  // namespace

void Server::request(ofl_event& event) {
  OwnedBody owned(event.capacity != 0 ? event.body : nullptr);
  const Bytes message = bytes_of(event);
  wire::Header header{};
  std::optional<Fault> fault = parse_header(message, header);
  if (!fault) fault = dispatch(event, header, message.subspan(sizeof header), owned);
  if (fault) refuse(event.connection, event.sequence, salvage(message), *fault);
}

std::optional<Fault> Server::dispatch(const ofl_event& event, const wire::Header& header, Bytes body, OwnedBody& owned) {
  const Nanoseconds stop_at = stop_at_.load(std::memory_order_acquire);
  const bool draining = stop_at != 0 && event.received_ns > stop_at;
  switch (static_cast<wire::Op>(header.op)) {
    case wire::Op::open: {
      if (draining) return Fault{Code::draining, "header.op", "the server is shutting down"};
      return open(event, header, body);
    }
    case wire::Op::lookup: {
      if (draining) return Fault{Code::draining, "header.op", "the server is shutting down"};
      return lookup(event, header, body, owned);
    }
    default: {
      if (auto fault = parse_stats(body)) return fault;
      counters_.add(ServerCounter::stats);
      send(event.connection, event.sequence, stats_reply(header.batch, statistics()));
      return std::nullopt;
    }
  }
}

std::optional<Fault> Server::open(const ofl_event& event, const wire::Header& header, Bytes body) {
  OpenView view;
  if (auto fault = parse_open(body, view)) return fault;
  const auto found = sessions_.find(event.connection);
  if (found == sessions_.end()) return std::nullopt;  // it is gone, and nobody waits for the answer
  if (!found->second->layers.empty())
    return Fault{Code::bad_message, "header.op", "a second OPEN on one connection"};
  std::vector<const Table*> layers;
  if (auto fault = tables_.bind(view, layers)) return fault;
  if (view.record.batch_rows_max > options_.batch_rows_max)
    return Fault{Code::limit, "open.batch_rows_max",
                 "the client asks for " + std::to_string(view.record.batch_rows_max) + ", the server has " +
                     std::to_string(options_.batch_rows_max)};
  found->second->layers = std::move(layers);
  found->second->batch_rows_max = options_.batch_rows_max;
  if (checksum_available()) found->second->open_sum = checksum(body.data(), body.size(), 0);
  counters_.add(ServerCounter::opens);
  const wire::OpenReply record{.identity = tables_.identity(),
                               .boot = boot_,
                               .batch_rows_max = options_.batch_rows_max,
                               .calls_max = options_.calls_max};
  send(event.connection, event.sequence, open_reply(header.batch, record));
  return std::nullopt;
}

std::optional<Fault> Server::check_lookup(const LookupView& view, const Session& session) const {
  if (session.layers.empty()) return Fault{Code::not_open, "header.op", "a LOOKUP before an OPEN"};
  for (std::size_t index = 0; index < view.record.parts; ++index)
    if (const wire::LookupPart part = view.part(index); part.layer >= session.layers.size())
      return Fault{Code::no_table, "lookup_part[" + std::to_string(index) + "].layer",
                   std::to_string(part.layer) + " where OPEN named " + std::to_string(session.layers.size()) + " layers"};
  if (view.rows > session.batch_rows_max)
    return Fault{Code::limit, "lookup_part.ids",
                 std::to_string(view.rows) + " rows where " + std::to_string(session.batch_rows_max) + " are the limit"};
  if (session.unanswered.load(std::memory_order_relaxed) >= options_.calls_max)
    return Fault{Code::limit, "header.op",
                 std::to_string(options_.calls_max) + " lookups of this connection are unanswered, which is the limit"};
  if ((view.record.flags & wire::kChecksum) != 0 && !checksum_available())
    return Fault{Code::limit, "lookup.flags", checksum_available().text};
  return std::nullopt;
}

std::optional<Fault> Server::lookup(const ofl_event& event, const wire::Header& header, Bytes body, OwnedBody& owned) {
  const Nanoseconds begun = now_ns();
  LookupView view;
  if (auto fault = parse_lookup(body, view)) return fault;
  const auto found = sessions_.find(event.connection);
  if (found == sessions_.end()) return std::nullopt;
  if (auto fault = check_lookup(view, *found->second)) return fault;
  const bool summed = (view.record.flags & wire::kChecksum) != 0;
  const std::uint64_t asked_sum = summed ? checksum(body.data(), body.size(), found->second->open_sum) : 0;
  const bool small = view.rows <= kInlineRows && !pool_.waiting();
  std::unique_ptr<Lookup> pooled;
  for (Lookup* lookup = small ? &inline_ : nullptr;; lookup = nullptr) {
    if (lookup == nullptr) pooled = std::make_unique<Lookup>();
    Lookup& to = lookup != nullptr ? *lookup : *pooled;
    to.connection = event.connection;
    to.sequence = event.sequence;
    to.batch = header.batch;
    to.begun = begun;
    to.session = found->second;
    to.asked_sum = asked_sum;
    to.take(view, *found->second);
    if (to.reply_bytes > event.reply_bytes_max)
      return Fault{Code::limit, "lookup_part.ids",
                   "the reply has " + std::to_string(to.reply_bytes) + " bytes where the call takes " +
                       std::to_string(event.reply_bytes_max)};
    if (lookup == nullptr) break;
    to.session->unanswered.fetch_add(1, std::memory_order_relaxed);
    if (answer_inline(to)) return std::nullopt;
    to.session->unanswered.fetch_sub(1, std::memory_order_relaxed);
  }
  pooled->body = std::move(owned);
  if (!pooled->body) pooled->copy_ids();
  pooled->session->unanswered.fetch_add(1, std::memory_order_relaxed);
  pool_.submit(std::move(pooled));
  return std::nullopt;
}

// False: no buffer is idle.
bool Server::answer_inline(Lookup& lookup) {
  ReplyBuffer* const buffer = buffers_.try_take();
  if (buffer == nullptr) return false;
  lookup.place(buffer);
  lookup.cut(lookup.rows + 1);
  for (const Lookup::Piece& piece : lookup.pieces) lookup.fill(piece);
  if (lookup.bad_id.load(std::memory_order_relaxed) == kAllRowsFound) counters_.add(ServerCounter::lookups_inline);
  finish(lookup);
  lookup.session.reset();
  return true;
}

}  // namespace engram
