// The client's own numbers; what an operator sets is in engram_client_options.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clock.hpp"
#include "wire.hpp"

namespace engram {

inline constexpr std::size_t kStagingsMax = 256;
inline constexpr std::size_t kHandoversMax = 256;

// How long a cancelled lookup's memory is waited for before the connection is closed over it.  Closing costs about as much.
inline constexpr Nanoseconds kSettle = kMillisecond;

// How long a waiting caller looks at most before it sleeps: its core may be the one that the proxy needs.
inline constexpr Nanoseconds kWaiterSpinMax = 200 * kMicrosecond;

// How often an idle proxy looks whether the connection lives: keepers notice a lost peer, nobody tells us.
inline constexpr Nanoseconds kLifeLook = 20 * kMillisecond;

// What an idle proxy sleeps between looks at hand-over blocks: a GPU writes their words, which wakes nobody.  With the
// thread's timer slack at its least, a look comes within 20 us.
inline constexpr Nanoseconds kHandoverNap = 10 * kMicrosecond;

// The transport's largest body.
inline constexpr std::size_t kFrameBytesMax = std::size_t{1} << 30;
inline constexpr std::size_t kFrameBytesMin = 1024;

// A refusal instead of rows must fit into staging too.
inline constexpr std::size_t kRefusalBytesMax =
    sizeof(wire::Header) + sizeof(wire::Refusal) + wire::kFieldBytesMax + wire::kDetailBytesMax;
inline constexpr std::size_t kStagingBytesMin = kRefusalBytesMax;

inline constexpr Nanoseconds kTimeoutMax = 600 * kSecond;  // of every setting that is a span

}  // namespace engram
