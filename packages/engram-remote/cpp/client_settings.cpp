#include "client_settings.hpp"

#include <algorithm>
#include <cstring>

#include "checksum.hpp"
#include "client_limits.hpp"
#include "ofl.h"
#include "reader.hpp"

namespace engram {

namespace {

constexpr std::uint32_t kFlagsAll =
    ENGRAM_BOUNCE | ENGRAM_CHECKSUM | ENGRAM_REQUIRED | ENGRAM_BUFFERED | ENGRAM_PREAD;
constexpr Nanoseconds kHeartbeatMin = 10 * kMillisecond;
constexpr Nanoseconds kHeartbeatMax = 60 * kSecond;

Outcome invalid(std::string text) { return failure(ENGRAM_INVALID, std::move(text)); }

Outcome check_range(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return invalid(std::string(name) + " must be from " + std::to_string(least) + " to " + std::to_string(most) + ", not " +
                 std::to_string(value));
}

Outcome check_span(const char* name, Nanoseconds value, Nanoseconds least) {
  if (value >= least && value <= kTimeoutMax) return {};
  return invalid(std::string(name) + " must be from " + std::to_string(least) + " to " + std::to_string(kTimeoutMax) +
                 " ns, not " + std::to_string(value));
}

Outcome check_shape(const engram_client_options& options) {
  const struct {
    const char* name;
    std::uint64_t value, least, most;
  } ranges[] = {{"layer_count", options.layer_count, 1, wire::kLayersMax},
                {"ranks", options.ranks, 1, wire::kRanksMax},
                {"columns", options.columns, 1, wire::kColumnsMax},
                {"scales", options.scales, 1, options.columns},
                {"batch_rows_max", options.batch_rows_max, 1, wire::kBatchRowsMax},
                {"read_threads", options.read_threads, 0, kPoolThreadsMax}};
  for (const auto& [name, value, least, most] : ranges) {
    Outcome outcome = check_range(name, value, least, most);
    if (!outcome) return outcome;
  }
  if (options.rank >= options.ranks)
    return invalid("rank must be below ranks, " + std::to_string(options.ranks) + ", not " + std::to_string(options.rank));
  if ((options.flags & ~kFlagsAll) != 0) return invalid("flags of a client has bits that are not defined");
  if (options.reserved != 0) return invalid("reserved of a client must be zero");
  return {};
}

Outcome check_spans(const engram_client_options& options) {
  const struct {
    const char* name;
    Nanoseconds value, least;
  } spans[] = {{"timeout_ns", options.timeout_ns, 1},
               {"connect_timeout_ns", options.connect_timeout_ns, 1},
               {"retry_ns", options.retry_ns, 1},
               {"retry_max_ns", options.retry_max_ns, options.retry_ns},
               {"heartbeat_ns", options.heartbeat_ns, kHeartbeatMin},
               {"loss_ns", options.loss_ns, 2 * options.heartbeat_ns},
               {"spin_ns", options.spin_ns, 0}};
  for (const auto& [name, value, least] : spans) {
    Outcome outcome = check_span(name, value, least);
    if (!outcome) return outcome;
  }
  if (options.heartbeat_ns > kHeartbeatMax) return invalid("heartbeat_ns must be at most 60 s");
  return {};
}

Outcome check_server(const engram_client_options& options, const ClientSettings& settings) {
  if (!settings.host) {
    if (settings.required) return invalid("host must be given where a server is required");
    return {};
  }
  if (options.transport < OFL_TCP || options.transport > OFL_SHM)
    return invalid("transport must be one of OFL_TCP, OFL_RDMA, OFL_SHM, not " + std::to_string(options.transport));
  if (settings.host->empty()) return invalid("host must not be empty");
  if (settings.frame_bytes_max() > kFrameBytesMax)
    return invalid("batch_rows_max: " + std::to_string(settings.batch_rows_max) + " rows need a message of " +
                   std::to_string(settings.frame_bytes_max()) + " bytes, over the transport's " +
                   std::to_string(kFrameBytesMax));
  return settings.checksum ? checksum_available() : Outcome{};
}

Outcome read_layers(const engram_client_options& options, ClientSettings& settings) {
  if (options.layers == nullptr) return invalid("layers must be given");
  for (std::uint32_t i = 0; i < options.layer_count; ++i) {
    const engram_layer& layer = options.layers[i];
    const std::string where = "layers[" + std::to_string(i) + "]";
    if (layer.shard == nullptr) return invalid(where + ".shard must be given: rows are read from it where no server gives them");
    if (layer.row_start >= layer.row_end || layer.row_end > (std::uint64_t{1} << 31U))
      return invalid(where + ": rows " + std::to_string(layer.row_start) + " to " + std::to_string(layer.row_end) +
                     " are no range of 32-bit ids");
    for (const ShardSpec& other : settings.layers)
      if (other.layer == layer.layer) return invalid(where + ".layer: " + std::to_string(layer.layer) + " stands twice");
    ShardSpec spec{.path = layer.shard,
                   .layer = layer.layer,
                   .rank = options.rank,
                   .ranks = options.ranks,
                   .columns = options.columns,
                   .scales = options.scales,
                   .row_start = layer.row_start,
                   .row_end = layer.row_end};
    std::copy(std::begin(layer.source_sha256), std::end(layer.source_sha256), spec.source_sha256.begin());
    settings.layers.push_back(std::move(spec));
  }
  return {};
}

void copy_plain(const engram_client_options& options, ClientSettings& settings) {
  if (options.host != nullptr) settings.host = options.host;
  if (options.bind != nullptr) settings.bind = options.bind;
  if (options.key_file != nullptr) settings.key_file = options.key_file;
  settings.port = options.port;
  settings.transport = options.transport;
  std::copy(std::begin(options.identity), std::end(options.identity), settings.identity.begin());
  settings.rank = options.rank;
  settings.ranks = options.ranks;
  settings.columns = options.columns;
  settings.scales = options.scales;
  settings.batch_rows_max = options.batch_rows_max;
  settings.bounce = (options.flags & ENGRAM_BOUNCE) != 0;
  settings.checksum = (options.flags & ENGRAM_CHECKSUM) != 0;
  settings.required = (options.flags & ENGRAM_REQUIRED) != 0;
  settings.buffered = (options.flags & ENGRAM_BUFFERED) != 0;
  settings.pread = (options.flags & ENGRAM_PREAD) != 0;
  settings.read_threads = options.read_threads;
  settings.timeout = options.timeout_ns;
  settings.connect_timeout = options.connect_timeout_ns;
  settings.retry = options.retry_ns;
  settings.retry_max = options.retry_max_ns;
  settings.heartbeat = options.heartbeat_ns;
  settings.loss = options.loss_ns;
  settings.spin = options.spin_ns;
}

}  // namespace

std::size_t ClientSettings::request_bytes_max() const noexcept {
  return sizeof(wire::Header) + sizeof(wire::Lookup) + layers.size() * sizeof(wire::LookupPart) +
         std::size_t{batch_rows_max} * sizeof(std::uint32_t);
}

std::size_t ClientSettings::reply_bytes_max() const noexcept {
  return wire::reply_bytes_max(batch_rows_max, layers.size(), columns, scales);
}

std::size_t ClientSettings::frame_bytes_max() const noexcept {
  const std::size_t open = sizeof(wire::Header) + sizeof(wire::Open) + layers.size() * sizeof(wire::OpenLayer);
  return std::max({request_bytes_max(), reply_bytes_max(), open, kRefusalBytesMax, kFrameBytesMin});
}

std::string ClientSettings::endpoint() const {
  if (!host) return "no server";
  if (transport == OFL_SHM) return "shm://" + *host;
  return std::string(transport == OFL_RDMA ? "rdma://" : "tcp://") + *host + ":" + std::to_string(port);
}

Outcome read_settings(const engram_client_options& options, ClientSettings& settings) {
  Outcome outcome = check_shape(options);
  if (outcome) outcome = check_spans(options);
  if (outcome) outcome = read_layers(options, settings);
  if (!outcome) return outcome;
  copy_plain(options, settings);
  return check_server(options, settings);
}

std::string hex(const std::array<std::uint8_t, 32>& digest) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

}  // namespace engram
