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

// Of the body of a request, which seeds the checksum of what answers it; 0 where none are asked for.
std::uint64_t request_sum(std::span<const std::byte> request, const ClientSettings& settings, std::uint64_t seed) noexcept;

// Whether the body is the rows that were asked for; wanted: its bytes.  asked_sum: of the request, seeded with OPEN's.
Reason judge_lookup(std::span<const std::byte> body, const ClientSettings& settings, const ClientLookup& lookup,
                    std::size_t wanted, std::uint64_t batch, std::uint64_t asked_sum) noexcept;

}  // namespace engram
