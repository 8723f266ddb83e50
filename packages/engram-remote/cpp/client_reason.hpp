// Why a lookup was served by the local shard.
#pragma once

#include <array>
#include <cstdint>

#include "wire.hpp"

namespace engram {

enum class Reason : std::uint32_t {
  none = 0,       // it was remote
  no_server,      // none is configured
  not_connected,  // nobody there, or not open yet
  late,           // the deadline passed first
  lost,           // the connection ended meanwhile
  bad_reply,      // a reply that is none to what was asked
  checksum,       // a reply whose bytes are not those that the server sent
  closing,        // the client was being closed
  unsendable,     // the transport did not take the request
  refused         // by the server; one reason for each of its codes follows from here on
};

inline constexpr std::uint32_t kReasons = static_cast<std::uint32_t>(Reason::refused) + wire::kCodes - 1;

// code: not ok, and known.
constexpr Reason refused_with(wire::Code code) noexcept {
  return static_cast<Reason>(static_cast<std::uint32_t>(Reason::refused) + static_cast<std::uint32_t>(code) - 1);
}

inline constexpr std::array<const char*, kReasons> kReasonNames = {
    "remote",           "no_server",       "not_connected",   "late",
    "lost",             "bad_reply",       "checksum",        "closing",
    "unsendable",       "refused_bad_message", "refused_version", "refused_identity",
    "refused_no_table", "refused_shape",   "refused_not_open", "refused_bad_id",
    "refused_limit",    "refused_draining"};

}  // namespace engram
