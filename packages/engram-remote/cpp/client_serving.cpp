#include "client_serving.hpp"

#include <cstring>
#include <exception>

namespace engram {

namespace {

constexpr int kNoNumber = 0xFF;  // NaN as float8 E4M3 and as E8M0

// After a refusal for want of room the reply is whole and the connection as good as before.
bool ends_connection(Reason reason) noexcept {
  return reason != Reason::no_server && reason != Reason::not_connected && reason != Reason::closing &&
         reason != refused_with(wire::Code::limit);
}

}  // namespace

Serving::Serving(const ClientSettings& settings, const Stagings& stagings, ClientCounters& counters,
                 std::unique_ptr<ShardSet> shards, Connector* connector)
    : settings_(settings), stagings_(stagings), counters_(counters), shards_(std::move(shards)), connector_(connector) {
  batches_.reserve(wire::kLayersMax);
}

Serving::~Serving() {
  if (connection_) connection_->end();
}

void Serving::adopt(std::unique_ptr<Connection> connection) {
  connection_ = std::move(connection);
  for_child_.store(connection_.get(), std::memory_order_relaxed);
}

void Serving::upkeep() {
  if (connector_ == nullptr || closing_) return;
  if (connection_ && !connection_->alive()) drop(connection_->why_lost());
  if (connection_ || !connector_->offers()) return;
  adopt(connector_->take());
  const Outcome outcome = connection_->register_new(stagings_);
  if (!outcome) drop(outcome.text);
}

Outcome Serving::register_next(const Staging& staging) {
  if (stagings_.count() == kStagingsMax)
    return failure(ENGRAM_INVALID, "staging: a client takes at most " + std::to_string(kStagingsMax));
  return connection_ ? connection_->register_next(staging) : Outcome{};
}

void Serving::drop(const std::string& why) {
  for_child_.store(nullptr, std::memory_order_relaxed);
  connection_->end();
  connector_->lost(std::move(connection_), why);
}

void Serving::close() {
  closing_ = true;
  if (connection_) drop("the client was closed");
}

void Serving::abandon() noexcept {
  if (Connection* connection = for_child_.load(std::memory_order_relaxed)) connection->abandon();
}

Served Serving::serve(const ClientLookup& lookup, Staging& staging) noexcept {
  const Nanoseconds begun = now_ns();
  Served served;
  served.result.rows = lookup.rows;
  try {
    const Reason reason = remote(lookup, staging, begun + settings_.timeout, served);
    if (reason != Reason::none) local(lookup, staging, reason, served);
  } catch (const std::exception& error) {
    spoil(lookup, staging);
    served.outcome = failure(ENGRAM_FAILED, std::string("the lookup cannot be served: ") + error.what());
  }
  served.result.elapsed_ns = now_ns() - begun;
  counters_.add(Counter::rows_out_of_shard, served.result.out_of_shard);
  if (!served.outcome) {
    counters_.add(Counter::lookups_failed);
  } else if (served.result.outcome == ENGRAM_REMOTE) {
    counters_.remote.add(served.result.elapsed_ns);
  } else {
    counters_.local.add(served.result.elapsed_ns);
  }
  return served;
}

Reason Serving::remote(const ClientLookup& lookup, Staging& staging, Nanoseconds deadline, Served& served) noexcept {
  if (connector_ == nullptr) return Reason::no_server;
  if (closing_) return Reason::closing;
  upkeep();
  if (!connection_) return Reason::not_connected;
  const Connection::Answer answer = connection_->lookup(lookup, staging, deadline);
  if (answer.reason != Reason::none) {
    const bool gone = answer.reason == Reason::lost;
    if (ends_connection(answer.reason))
      drop(gone ? connection_->why_lost() : std::string("a lookup was ") + kReasonNames[static_cast<std::uint32_t>(answer.reason)]);
    return answer.reason;
  }
  connection_->proved = true;
  served.result.outcome = ENGRAM_REMOTE;
  served.result.out_of_shard = answer.out_of_shard;
  counters_.add(Counter::lookups_remote);
  counters_.add(Counter::rows_remote, lookup.rows);
  counters_.add(Counter::bytes_remote, answer.bytes);
  return Reason::none;
}

void Serving::local(const ClientLookup& lookup, Staging& staging, Reason reason, Served& served) {
  served.result.outcome = ENGRAM_LOCAL;
  served.result.reason = static_cast<std::uint32_t>(reason);
  counters_.add_fallback(reason);
  PlaneWalk walk(staging.base(), settings_.columns, settings_.scales);
  batches_.clear();
  for (const engram_batch& batch : lookup.batches)
    batches_.push_back({batch.layer, {batch.ids, batch.count}, walk.next(batch.count)});
  const Outcome outcome = shards_->read(batches_);
  if (!outcome) {
    spoil(lookup, staging);
    served.outcome = failure(ENGRAM_FAILED, "the server gave no rows (" +
                                                std::string(kReasonNames[static_cast<std::uint32_t>(reason)]) + "), and " +
                                                outcome.text);
    return;
  }
  served.result.out_of_shard = shards_->out_of_shard();
  counters_.add(Counter::lookups_local);
  counters_.add(Counter::rows_local, lookup.rows);
}

// Only where nothing else writes there: no connection is open, or its reply is whole.
void Serving::spoil(const ClientLookup& lookup, Staging& staging) const noexcept {
  const std::size_t bytes = body_bytes(lookup.batches, settings_.columns, settings_.scales) - wire::kHeadBytes;
  std::memset(staging.base() + wire::kHeadBytes, kNoNumber, bytes);
}

}  // namespace engram
