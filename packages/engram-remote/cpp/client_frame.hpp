// The messages of a client: written, and what comes back judged.  Pure: bytes in, bytes and verdicts out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client_reason.hpp"
#include "client_settings.hpp"
#include "client_staging.hpp"
#include "wire.hpp"

namespace engram {

std::vector<std::byte> open_request(const ClientSettings& settings, std::uint64_t batch);

// What the server made of OPEN.
struct OpenAnswer {
  Outcome outcome;     // ENGRAM_REFUSED: it said no; ENGRAM_LOST: it does not speak this protocol
  bool final = false;  // of a refusal: asking again changes nothing
};
OpenAnswer judge_open(std::span<const std::byte> body, const ClientSettings& settings, std::uint64_t batch);

// What a lookup's request came to.
struct LookupRequest {
  std::size_t bytes = 0;
  std::uint64_t out_of_shard = 0;
};
// room: at least settings.request_bytes_max().
LookupRequest write_lookup(std::span<std::byte> room, const ClientSettings& settings, const ClientLookup& lookup,
                           std::uint64_t batch) noexcept;

// Whether the body is the rows that were asked for; wanted: its bytes.
Reason judge_lookup(std::span<const std::byte> body, const ClientSettings& settings, const ClientLookup& lookup,
                    std::size_t wanted, std::uint64_t batch) noexcept;

}  // namespace engram
