// The sizes of an RDMA connection, in one place.
//
// Chosen for messages of 64 bytes to 13 MB over path MTUs of 1,024 (soft-RoCE) and 4,096 (hardware): a request of 75 KB is
// five segments, so that copying one overlaps with sending another, and 64 receives (1 MiB) cover 100 Gbit/s for 80 us of
// a reader's absence.  With its 32 send slots a connection registers 1.5 MiB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ofl {

inline constexpr std::uint32_t kSegmentBytes = 16384;  // of one receive and of one send slot
inline constexpr std::uint32_t kReceives = 64;         // posted: the peer's credits
inline constexpr std::uint32_t kSendSlots = 32;        // sends under way
inline constexpr std::uint32_t kInlineBytes = 220;     // asked for; a device may give less
inline constexpr std::uint32_t kGatherMax = 8;         // pieces of one send
inline constexpr std::uint32_t kLentBytesMin = 2048;   // shorter parts are copied: a piece of its own would cost more
inline constexpr std::uint32_t kReserve = 2;           // credits and send slots that data leaves to credit updates
inline constexpr std::uint32_t kSignalEvery = 8;       // sends per completion, at most
inline constexpr std::uint32_t kUnseenBytesMax = 1U << 20;  // of writes in a row that the peer's CPU hears nothing of
inline constexpr std::size_t kBatch = 16;              // completions taken in one go
inline constexpr std::size_t kOwedMax = 8;             // receives read and not posted again while more is coming

// What a peer may ask for.
inline constexpr std::uint32_t kReceivesMin = 4;
inline constexpr std::uint32_t kReceivesMax = 65535;  // returned credits travel in 16 bits
inline constexpr std::uint32_t kSegmentBytesMin = 1024;
inline constexpr std::uint32_t kSegmentBytesMax = 1U << 24;

// Recovery below us: what is not acknowledged is sent again after 67 ms (devices may take up to four times that), so that
// one lost packet costs less than the 250 ms of silence that count as a dead peer.  A device gives up after seven tries,
// 0.5 to 2.2 s; soft-RoCE, which takes seven for without end, never does.  Silence and the control socket end a connection
// whatever the device does.
inline constexpr std::uint8_t kAckTimeout = 14;  // 4.096 us * 2^14
inline constexpr std::uint8_t kRetries = 7;      // the largest that there is
inline constexpr std::uint8_t kReceiverNotReadyRetries = 7;  // without end, on every device; credits keep it from happening
inline constexpr std::uint8_t kReceiverNotReadyTimer = 12;   // 0.64 ms
inline constexpr std::uint8_t kHopLimit = 64;

static_assert(kUnseenBytesMax % kSegmentBytes == 0);
static_assert(kSignalEvery <= kSendSlots / 2, "a full send queue must hold a send that completes");
static_assert(kOwedMax + kBatch < kReceives / 2, "a busy reader must not hold back the credits of half its receives");
static_assert(kReceives >= kReceivesMin && kReceives <= kReceivesMax);

}  // namespace ofl
