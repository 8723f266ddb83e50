#include "client_connection.hpp"

#include <algorithm>

#include "client_limits.hpp"

namespace engram {

namespace {

constexpr std::size_t kTextBytes = 512;

Status from_ofl(std::int32_t status) noexcept {
  switch (status) {
    case OFL_REFUSED: return ENGRAM_REFUSED;
    case OFL_INVALID: return ENGRAM_INVALID;
    case OFL_SYSTEM: return ENGRAM_SYSTEM;
    default: return ENGRAM_LOST;
  }
}

ofl_client_options ofl_options(const ClientSettings& settings) noexcept {
  ofl_client_options options{};
  options.host = settings.host->c_str();
  options.bind = settings.bind.empty() ? nullptr : settings.bind.c_str();
  options.service = wire::kService;
  options.key_file = settings.key_file ? settings.key_file->c_str() : nullptr;
  options.port = settings.port;
  options.version_min = wire::kVersion;
  options.version_max = wire::kVersion;
  options.transport = settings.transport;
  options.frame_bytes_max = static_cast<std::uint32_t>(settings.frame_bytes_max());
  options.heartbeat_ns = settings.heartbeat;
  options.loss_ns = settings.loss;
  options.spin_ns = settings.spin;
  return options;
}

}  // namespace

Outcome Connection::open(const ClientSettings& settings, const Stagings& stagings, Nanoseconds deadline,
                         std::unique_ptr<Connection>& connection, bool& final) {
  final = false;
  std::unique_ptr<Connection> made(new Connection(settings));
  Outcome outcome = made->connect(deadline);
  if (outcome) outcome = made->make_request_buffer();
  if (outcome) outcome = made->register_new(stagings);
  if (outcome) outcome = made->exchange_open(deadline, final);
  if (outcome) connection = std::move(made);
  return outcome;
}

Connection::~Connection() {
  if (client_ != nullptr) ofl().client_free(client_);
  if (request_ != nullptr) ofl().buffer_free(request_);
}

Outcome Connection::connect(Nanoseconds deadline) {
  const ofl_client_options options = ofl_options(settings_);
  ofl_peer peer{};
  char text[kTextBytes] = "";
  std::int32_t status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl().client_connect(&options, deadline, &client_, &peer, text, sizeof text);
  if (status != OFL_OK) return failure(from_ofl(status), settings_.endpoint() + ": " + text);
  if (peer.frame_bytes_max < options.frame_bytes_max)
    return failure(ENGRAM_REFUSED, settings_.endpoint() + " takes messages of " + std::to_string(peer.frame_bytes_max) +
                                       " bytes; batch_rows_max " + std::to_string(settings_.batch_rows_max) + " needs " +
                                       std::to_string(options.frame_bytes_max));
  wire_ = settings_.endpoint() + " over " + peer.wire;
  return {};
}

Outcome Connection::make_request_buffer() {
  char text[kTextBytes] = "";
  std::int32_t status =
      ofl().buffer_create(nullptr, settings_.request_bytes_max(), 0, &request_, text, sizeof text);
  if (status == OFL_OK) status = ofl().client_register(client_, request_, text, sizeof text);
  return status == OFL_OK ? Outcome{} : failure(from_ofl(status), text);
}

Outcome Connection::register_new(const Stagings& stagings) {
  Outcome outcome;
  while (outcome && registered_ < stagings.count()) outcome = register_next(*stagings.at(registered_));
  return outcome;
}

Outcome Connection::register_next(const Staging& staging) {
  char text[kTextBytes] = "";
  const std::int32_t status = ofl().client_register(client_, staging.buffer(), text, sizeof text);
  if (status != OFL_OK)
    return failure(from_ofl(status), "staging " + std::to_string(registered_) + " cannot be registered: " + text);
  ++registered_;
  return {};
}

Outcome Connection::exchange_open(Nanoseconds deadline, bool& final) {
  const std::vector<std::byte> request = open_request(settings_, ++batch_);
  open_sum_ = request_sum(request, settings_, 0);
  std::uint64_t sequence = 0;
  std::int32_t status = submit({request.data(), request.size()}, nullptr, deadline, sequence);
  std::span<const std::byte> body;
  if (status == OFL_OK) status = wait(sequence, deadline, body);
  if (status == OFL_DEADLINE)
    return failure(ENGRAM_LOST, settings_.endpoint() + " did not answer OPEN within connect_timeout_ns");
  if (status != OFL_OK) return failure(ENGRAM_LOST, settings_.endpoint() + " was lost during OPEN: " + why_lost());
  OpenAnswer answer = judge_open(body, settings_, batch_);
  final = answer.final;
  return answer.outcome;
}

std::int32_t Connection::submit(const ofl_part& part, const ofl_call_options* options, Nanoseconds deadline,
                                std::uint64_t& sequence) {
  std::int32_t status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl().client_submit(client_, &part, 1, options, deadline, &sequence);
  return status;
}

std::int32_t Connection::wait(std::uint64_t sequence, Nanoseconds deadline, std::span<const std::byte>& body) {
  const void* base = nullptr;
  std::size_t bytes = 0;
  std::int32_t status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl().client_wait(client_, sequence, deadline, &base, &bytes);
  if (status == OFL_OK) body = {static_cast<const std::byte*>(base), bytes};
  return status;
}

// Whatever the peer still writes: a little patience, then the end of the connection is for whoever called.
void Connection::cancel(std::uint64_t sequence) noexcept {
  if (ofl().client_cancel(client_, sequence) != OFL_QUARANTINED) return;
  const Nanoseconds until = now_ns() + kSettle;
  while (ofl().client_settled(client_, sequence, until) == OFL_INTERRUPTED) continue;
}

Connection::Answer Connection::lookup(const ClientLookup& lookup, Staging& staging, Nanoseconds deadline) noexcept {
  auto* const room = static_cast<std::byte*>(ofl().buffer_base(request_));
  const LookupRequest request = write_lookup({room, settings_.request_bytes_max()}, settings_, lookup, ++batch_);
  const std::size_t wanted = body_bytes(lookup.batches, settings_.columns, settings_.scales);
  ofl_call_options options{};
  options.into = staging.buffer();
  options.into_bytes = std::max(wanted, kRefusalBytesMax);
  options.lent = request_;
  std::uint64_t sequence = 0;
  std::int32_t status = submit({room, request.bytes}, &options, deadline, sequence);
  std::span<const std::byte> body;
  if (status == OFL_OK) {
    status = wait(sequence, deadline, body);
    if (status == OFL_DEADLINE) cancel(sequence);
  }
  if (status == OFL_DEADLINE) return {Reason::late, request.out_of_shard, 0};
  if (status == OFL_LOST || status == OFL_CLOSED || status == OFL_UNKNOWN) return {Reason::lost, request.out_of_shard, 0};
  if (status != OFL_OK) return {Reason::unsendable, request.out_of_shard, 0};
  const std::uint64_t asked_sum = request_sum({room, request.bytes}, settings_, open_sum_);
  return {judge_lookup(body, settings_, lookup, wanted, batch_, asked_sum), request.out_of_shard, body.size()};
}

std::string Connection::why_lost() const {
  char text[kTextBytes] = "";
  ofl().client_reason(client_, text, sizeof text);
  return text[0] != '\0' ? text : "no reason is known";
}

}  // namespace engram
