#include "client.hpp"

#include <algorithm>
#include <utility>

#include "process.hpp"

namespace engram {

namespace {

Outcome invalid(std::string text) { return failure(ENGRAM_INVALID, std::move(text)); }

}  // namespace

Client::Client(ClientSettings settings) : settings_(std::move(settings)), fork_generation_(fork_generation()) {}

Outcome Client::create(const engram_client_options& options, std::unique_ptr<Client>& client) {
  ClientSettings settings;
  Outcome outcome = read_settings(options, settings);
  if (outcome && settings.host) outcome = needs_ofl();
  if (!outcome) return outcome;
  std::unique_ptr<Client> made(new Client(std::move(settings)));
  outcome = made->start();
  if (outcome) client = std::move(made);
  return outcome;
}

// The shards first: without them a lost server could not be made good.
Outcome Client::start() {
  std::unique_ptr<ShardSet> shards;
  const ShardSetOptions how{!settings_.buffered, !settings_.pread, settings_.read_threads};
  Outcome outcome = ShardSet::open(settings_.layers, how, shards);
  if (!outcome) return outcome;
  std::unique_ptr<Connection> connection;
  if (settings_.host) {
    connector_ = std::make_unique<Connector>(settings_, stagings_, counters_);
    if (settings_.required) outcome = connector_->connect_once(connection);
    if (!outcome) return outcome;
  }
  serving_ = std::make_unique<Serving>(settings_, stagings_, counters_, std::move(shards), connector_.get());
  proxy_ = std::make_unique<Proxy>(settings_, stagings_, counters_, *serving_, tickets_, handovers_);
  const bool connected = connection != nullptr;
  if (connected) serving_->adopt(std::move(connection));
  if (connector_) connector_->start(connected);
  proxy_->start();
  return {};
}

Outcome Client::add_staging(void* base, std::size_t bytes, std::uint32_t& index) {
  std::unique_ptr<Staging> staging;
  Outcome outcome = Staging::make(base, bytes, settings_.host.has_value(), settings_.bounce, staging);
  if (!outcome) return outcome;
  return proxy_->add_staging(std::move(staging), index);
}

Outcome Client::check(std::span<const engram_batch> batches, std::uint64_t& rows) const {
  if (batches.empty() || batches.size() > settings_.layers.size())
    return invalid("batches must be from 1 to " + std::to_string(settings_.layers.size()) + ", one for each layer, not " +
                   std::to_string(batches.size()));
  std::uint64_t seen = 0;
  rows = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const engram_batch& batch = batches[i];
    const std::string where = "batches[" + std::to_string(i) + "]";
    if (batch.layer >= settings_.layers.size())
      return invalid(where + ".layer must be below " + std::to_string(settings_.layers.size()) + ", not " +
                     std::to_string(batch.layer));
    if ((seen >> batch.layer & 1U) != 0) return invalid(where + ".layer: " + std::to_string(batch.layer) + " stands twice");
    seen |= std::uint64_t{1} << batch.layer;
    if (batch.ids == nullptr && batch.count != 0) return invalid(where + ".ids must be given");
    rows += batch.count;
  }
  if (rows > settings_.batch_rows_max)
    return invalid("count: " + std::to_string(rows) + " rows of one lookup are over batch_rows_max, " +
                   std::to_string(settings_.batch_rows_max));
  return {};
}

// A staging serves tickets or one block, whichever came first.
Outcome Client::use_staging(std::uint32_t index, std::size_t bytes, bool handover) {
  const Staging* const staging = stagings_.at(index);
  const std::string name = "staging " + std::to_string(index);
  if (staging == nullptr) return invalid(name + " does not exist");
  if (staging->bytes() < bytes)
    return invalid(name + " has " + std::to_string(staging->bytes()) + " bytes; the rows need " + std::to_string(bytes));
  const std::scoped_lock lock(using_);
  Use& use = uses_[index];
  if (use == Use::handover || (handover && use != Use::none)) return invalid(name + " is in use by something else");
  use = handover ? Use::handover : Use::tickets;
  return {};
}

Outcome Client::enqueue(std::span<const engram_batch> batches, std::uint32_t staging, std::uint64_t& ticket) {
  std::uint64_t rows = 0;
  Outcome outcome = check(batches, rows);
  if (outcome) outcome = use_staging(staging, body_bytes(batches, settings_.columns, settings_.scales), false);
  return outcome ? tickets_.enqueue(batches, rows, staging, ticket) : outcome;
}

Outcome Client::wait(std::uint64_t ticket, Nanoseconds deadline, engram_result& result) {
  return tickets_.wait(ticket, deadline, std::min(settings_.spin, kWaiterSpinMax), result);
}

Outcome Client::attach(engram_handover* block, std::uint32_t rows_max, std::uint32_t layer, std::uint32_t staging) {
  if (block == nullptr || reinterpret_cast<std::uintptr_t>(block) % wire::kPlaneAlignment != 0)
    return invalid("block must be given, at a multiple of " + std::to_string(wire::kPlaneAlignment));
  if (rows_max == 0 || rows_max > settings_.batch_rows_max)
    return invalid("rows_max must be from 1 to batch_rows_max, " + std::to_string(settings_.batch_rows_max) + ", not " +
                   std::to_string(rows_max));
  if (layer >= settings_.layers.size())
    return invalid("layer must be below " + std::to_string(settings_.layers.size()) + ", not " + std::to_string(layer));
  const engram_batch largest{nullptr, rows_max, layer};
  Outcome outcome = use_staging(staging, body_bytes({&largest, 1}, settings_.columns, settings_.scales), true);
  if (!outcome) return outcome;
  outcome = handovers_.add({block, rows_max, layer, stagings_.at(staging)});
  if (outcome) {
    proxy_->poke();
  } else {
    const std::scoped_lock lock(using_);
    uses_[staging] = Use::none;
  }
  return outcome;
}

bool Client::connected(std::string& text) {
  if (connector_) return connector_->connected(text);
  text = "no server is configured";
  return false;
}

void Client::close() noexcept {
  const std::scoped_lock one(closing_);
  if (proxy_) proxy_->close();
  if (connector_) connector_->end();
}

bool Client::foreign() const noexcept { return fork_generation_ != fork_generation(); }

void Client::abandon() noexcept {
  if (serving_) serving_->abandon();
  if (connector_) connector_->abandon();
}

}  // namespace engram
