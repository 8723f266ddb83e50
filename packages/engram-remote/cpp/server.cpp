#include "server.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <sched.h>

#include "checksum.hpp"
#include "process.hpp"

namespace engram {

namespace {

constexpr std::uint32_t kFrameBytesMax = 1U << 30;  // of the transport
constexpr std::uint32_t kTransportCallsMax = 256;   // of the transport, for one connection
constexpr std::uint32_t kPendingMax = 64;
constexpr Nanoseconds kHandshake = 5 * kSecond;
constexpr Nanoseconds kFrame = 10 * kSecond;
constexpr Nanoseconds kTurn = kSecond;       // longest wait for an event
constexpr Nanoseconds kDrain = 10 * kSecond;  // longest time that lookups which came before the stop are still answered
constexpr Nanoseconds kDrainTurn = kMillisecond;

unsigned usable_cpus() noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(CPU_COUNT(&set), 1));
}

Status status_of(std::int32_t status) noexcept {
  switch (status) {
    case OFL_OK: return ENGRAM_OK;
    case OFL_IN_USE: return ENGRAM_IN_USE;
    case OFL_INVALID: return ENGRAM_INVALID;
    case OFL_CLOSED: return ENGRAM_CLOSED;
    default: return ENGRAM_SYSTEM;
  }
}

Outcome outside(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  return failure(ENGRAM_INVALID, std::string(name) + ": " + std::to_string(value) + " is not " + std::to_string(least) +
                                     " .. " + std::to_string(most));
}

Outcome check(const ServerOptions& options) {
  struct Range {
    const char* name;
    std::uint64_t value;
    std::uint64_t least;
    std::uint64_t most;
  };
  const Range ranges[] = {{"columns", options.columns, 1, wire::kColumnsMax},
                          {"scales", options.scales, 1, options.columns},
                          {"gather_threads", options.gather_threads, 1, 1024},
                          {"connections_max", options.connections_max, 1, 65536},
                          {"batch_rows_max", options.batch_rows_max, 1, wire::kBatchRowsMax},
                          {"calls_max", options.calls_max, 1, kTransportCallsMax - 1},
                          {"reply_buffers", options.reply_buffers, 1, 65536}};
  for (const Range& range : ranges)
    if (range.value < range.least || range.value > range.most)
      return outside(range.name, range.value, range.least, range.most);
  if (options.spin < 0) return failure(ENGRAM_INVALID, "spin_ns must not be negative");
  const std::size_t reply = wire::reply_bytes_max(options.batch_rows_max, wire::kLayersMax, options.columns, options.scales);
  if (reply > kFrameBytesMax)
    return failure(ENGRAM_INVALID, "batch_rows_max: a reply of " + std::to_string(options.batch_rows_max) + " rows has " +
                                       std::to_string(reply) + " bytes where the transport carries " +
                                       std::to_string(kFrameBytesMax));
  return {};
}

std::uint32_t frame_bytes(const ServerOptions& options) noexcept {
  const std::size_t reply = wire::reply_bytes_max(options.batch_rows_max, wire::kLayersMax, options.columns, options.scales);
  const std::size_t ask = sizeof(wire::Header) + sizeof(wire::Lookup) + wire::kLayersMax * sizeof(wire::LookupPart) +
                          options.batch_rows_max * sizeof(std::uint32_t);
  const std::size_t stats = sizeof(wire::Header) + sizeof(wire::StatsReply) + wire::kStatsBytesMax;
  return static_cast<std::uint32_t>(std::min<std::size_t>(std::max({reply, ask, stats}), kFrameBytesMax));
}

}  // namespace

Outcome Server::create(const ServerOptions& options, std::unique_ptr<Server>& server) {
  Outcome outcome = needs_ofl();
  if (outcome) outcome = check(options);
  if (!outcome) return outcome;
  std::unique_ptr<Server> fresh(new Server(options));
  outcome = fresh->make_transport();
  if (outcome) server = std::move(fresh);
  return outcome;
}

Server::Server(const ServerOptions& options)
    : options_(options),
      fork_generation_(fork_generation()),
      boot_(random_nonce()),
      created_(now_ns()),
      tables_(options.identity, options.columns, options.scales),
      pool_(buffers_, counters_, [this](Lookup& lookup) { finish(lookup); }) {}

Server::~Server() {
  pool_.stop();
  if (transport_) ofl().server_close(transport_.get());
}

bool Server::foreign() const noexcept { return fork_generation_ != fork_generation(); }

Outcome Server::make_transport() {
  std::vector<const char*> allowed;
  for (const std::string& one : options_.allowed) allowed.push_back(one.c_str());
  const std::uint32_t frame = frame_bytes(options_);
  const ofl_server_options wanted{.service = wire::kService,
                                  .key_file = options_.key_file ? options_.key_file->c_str() : nullptr,
                                  .allowed = allowed.data(),
                                  .allowed_count = static_cast<std::uint32_t>(allowed.size()),
                                  .reserved = 0,
                                  .version_min = wire::kVersion,
                                  .version_max = wire::kVersion,
                                  .frame_bytes_max = frame,
                                  .connections_max = options_.connections_max,
                                  .pending_max = kPendingMax,
                                  .calls_max = options_.calls_max + 1,  // room for a STATS beside the lookups
                                  .allow_any = options_.allow_any ? 1U : 0U,
                                  .handshake_ns = kHandshake,
                                  .frame_ns = kFrame,
                                  // For questions that wait, and refusals that are not read: rows lie in our own buffers.
                                  .queue_bytes_max = frame,
                                  .spin_ns = options_.spin};
  char text[512] = "";
  ofl_server* made = nullptr;
  const std::int32_t status = ofl().server_create(&wanted, &made, text, sizeof text);
  if (status != OFL_OK) return failure(status_of(status), text);
  transport_.reset(made);
  return {};
}

Outcome Server::add_table(const Table& table) {
  if (prepared_) return failure(ENGRAM_INVALID, "tables are added before the first listener");
  return tables_.add(table);
}

Outcome Server::listen(std::uint32_t transport, const char* host, std::uint16_t port, std::uint16_t& bound_port) {
  if (prepared_) return failure(ENGRAM_INVALID, "listeners are made before the server is prepared");
  char text[512] = "";
  const std::int32_t status =
      ofl().server_listen(transport_.get(), transport, host, port, &bound_port, text, sizeof text);
  return status == OFL_OK ? Outcome{} : failure(status_of(status), text);
}

Outcome Server::prepare() {
  if (prepared_) return {};
  // Rows begin at a multiple of the plane alignment only by chance, so every part may take two planes' padding more.
  const std::size_t parts = std::min<std::size_t>(wire::kLayersMax, std::max<std::size_t>(tables_.all().size(), 1));
  const std::size_t bytes = wire::reply_bytes_max(options_.batch_rows_max, parts, options_.columns, options_.scales);
  Outcome outcome = buffers_.create(transport_.get(), options_.reply_buffers, bytes);
  if (!outcome) return outcome;
  pool_.start(options_.gather_threads, usable_cpus() < 2 ? 0 : options_.spin);
  prepared_ = true;
  return {};
}

Outcome Server::run() {
  Outcome outcome = prepare();
  if (!outcome) return outcome;
  if (running_.exchange(true)) return failure(ENGRAM_INVALID, "the server runs already, or did");
  bool idle = false;
  while (stop_at_.load(std::memory_order_acquire) == 0) turn(now_ns() + kTurn, idle);
  drain();
  pool_.stop();
  ofl().server_close(transport_.get());
  return {};
}

void Server::stop() noexcept {
  Nanoseconds never = 0;
  if (stop_at_.compare_exchange_strong(never, now_ns(), std::memory_order_release)) ofl().server_wake(transport_.get());
}

void Server::drain() {
  // One empty turn proves nothing, for it may be the wake-up of the stop.
  const Nanoseconds deadline = now_ns() + kDrain;
  for (int empty = 0; now_ns() < deadline && (empty < 2 || pool_.under_way() != 0);) {
    bool idle = false;
    turn(now_ns() + kDrainTurn, idle);
    empty = idle ? empty + 1 : 0;
  }
  static_cast<void>(buffers_.settle(deadline));
}

void Server::turn(Nanoseconds deadline, bool& idle) {
  ofl_event event;
  const std::int32_t status = ofl().server_next(transport_.get(), deadline, &event);
  idle = status != OFL_OK;
  if (!idle) handle(event);
}

void Server::handle(ofl_event& event) {
  switch (event.kind) {
    case OFL_EVENT_CONNECTED:
      counters_.add(ServerCounter::connections);
      counters_.add(ServerCounter::connections_open);
      sessions_[event.connection] = std::make_shared<Session>();
      return;
    case OFL_EVENT_DISCONNECTED:
      if (sessions_.erase(event.connection) != 0) counters_.subtract(ServerCounter::connections_open);
      return;
    default: request(event);
  }
}

}  // namespace engram
