// What a client was asked for: copied from the C ABI, checked, and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clock.hpp"
#include "engram.h"
#include "shard_file.hpp"
#include "status.hpp"
#include "wire.hpp"

namespace engram {

struct ClientSettings {
  std::optional<std::string> host;  // none: every lookup is local
  std::string bind;
  std::optional<std::string> key_file;
  std::vector<ShardSpec> layers;
  std::uint16_t port = 0;
  std::uint16_t transport = 0;
  std::array<std::uint8_t, wire::kIdentityBytes> identity{};
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint32_t columns = 0;
  std::uint32_t scales = 0;
  std::uint32_t batch_rows_max = 0;
  bool bounce = false;
  bool checksum = false;
  bool required = false;
  bool buffered = false;
  bool pread = false;
  std::uint32_t read_threads = 0;
  Nanoseconds timeout = 0;
  Nanoseconds connect_timeout = 0;
  Nanoseconds retry = 0;
  Nanoseconds retry_max = 0;
  Nanoseconds heartbeat = 0;
  Nanoseconds loss = 0;
  Nanoseconds spin = 0;

  // Of the largest lookup.
  std::size_t request_bytes_max() const noexcept;
  std::size_t reply_bytes_max() const noexcept;
  std::size_t frame_bytes_max() const noexcept;  // both, and what the transport and a refusal need
  std::string endpoint() const;                  // for a sentence
};

// ENGRAM_INVALID names the option at fault.
Outcome read_settings(const engram_client_options& options, ClientSettings& settings);

std::string hex(const std::array<std::uint8_t, 32>& digest);

}  // namespace engram
