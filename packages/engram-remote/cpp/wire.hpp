// The bytes of `engram-v1`, as ofl.contract.engram_v1.layout declares them: records, codes, limits and where planes lie.
// Little-endian, no padding.  Records are copied in and out; nothing points into a peer's bytes as a struct.
//
// Ids on the wire are global ones: row_start .. row_end-1 of the shard, or kNoRow.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace engram::wire {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

inline constexpr char kService[] = "engram";
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint32_t kMagic = 0x4D524745;  // 'EGRM'
inline constexpr std::uint32_t kLayersMax = 64;
inline constexpr std::uint32_t kRanksMax = 1024;
inline constexpr std::uint32_t kColumnsMax = 65536;
inline constexpr std::uint32_t kBatchRowsMax = 1U << 24;
inline constexpr std::uint64_t kRowEndMax = 0xFFFFFFFFU;  // the last id is taken by kNoRow
inline constexpr std::uint32_t kNoRow = 0xFFFFFFFFU;
inline constexpr std::size_t kFieldBytesMax = 128;
inline constexpr std::size_t kDetailBytesMax = 512;
inline constexpr std::size_t kStatsBytesMax = 1U << 20;
inline constexpr std::size_t kPlaneAlignment = 64;
inline constexpr std::size_t kIdentityBytes = 32;

enum class Op : std::uint8_t { unreadable = 0, open = 1, lookup = 2, stats = 3 };
enum class Kind : std::uint8_t { request = 0, reply = 1 };
enum class Code : std::uint16_t {
  ok = 0,
  bad_message = 1,
  version = 2,
  identity = 3,
  no_table = 4,
  shape = 5,
  not_open = 6,
  bad_id = 7,
  limit = 8,
  draining = 9
};
inline constexpr std::size_t kCodes = 10;
inline constexpr std::uint32_t kChecksum = 1;  // LookupFlag
inline constexpr std::uint32_t kLookupFlagsAll = kChecksum;

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t op;
  std::uint8_t kind;
  std::uint16_t status;
  std::uint16_t reserved0;
  std::uint32_t reserved1;
  std::uint64_t batch;
  std::uint32_t body_bytes;
  std::uint32_t reserved2;
};

struct Refusal {
  std::uint16_t field_bytes;
  std::uint16_t detail_bytes;
  std::uint32_t reserved0;
};

struct Open {
  std::array<std::uint8_t, kIdentityBytes> identity;
  std::uint32_t columns;
  std::uint32_t scales;
  std::uint16_t rank;
  std::uint16_t ranks;
  std::uint16_t layers;
  std::uint16_t reserved0;
  std::uint32_t batch_rows_max;
  std::uint32_t reserved1;
};

struct OpenLayer {
  std::uint64_t row_start;
  std::uint64_t row_end;
  std::uint32_t layer;
  std::uint32_t reserved0;
};

struct OpenReply {
  std::array<std::uint8_t, kIdentityBytes> identity;
  std::uint64_t boot;
  std::uint32_t batch_rows_max;
  std::uint32_t calls_max;
};

struct Lookup {
  std::uint32_t flags;
  std::uint16_t parts;
  std::uint16_t reserved0;
};

struct LookupPart {
  std::uint32_t layer;  // position in OPEN's layers
  std::uint32_t ids;
};

struct LookupReply {
  std::uint32_t flags;
  std::uint32_t rows;
  std::uint64_t checksum;
  std::uint64_t gather_ns;
  std::uint64_t reserved0;
};

struct StatsReply {
  std::uint32_t text_bytes;
  std::uint32_t reserved0;
};

// A record is all of its bytes: no padding hides between fields, and what is sent holds nothing else of this process.
template <typename Record>
inline constexpr bool kPacked = std::is_trivially_copyable_v<Record> && std::has_unique_object_representations_v<Record>;

static_assert(kPacked<Header> && sizeof(Header) == 32 && offsetof(Header, op) == 6 && offsetof(Header, status) == 8 &&
              offsetof(Header, batch) == 16 && offsetof(Header, body_bytes) == 24);
static_assert(kPacked<Refusal> && sizeof(Refusal) == 8 && offsetof(Refusal, detail_bytes) == 2);
static_assert(kPacked<Open> && sizeof(Open) == 56 && offsetof(Open, columns) == 32 && offsetof(Open, rank) == 40 &&
              offsetof(Open, layers) == 44 && offsetof(Open, batch_rows_max) == 48);
static_assert(kPacked<OpenLayer> && sizeof(OpenLayer) == 24 && offsetof(OpenLayer, layer) == 16);
static_assert(kPacked<OpenReply> && sizeof(OpenReply) == 48 && offsetof(OpenReply, boot) == 32 &&
              offsetof(OpenReply, batch_rows_max) == 40);
static_assert(kPacked<Lookup> && sizeof(Lookup) == 8 && offsetof(Lookup, parts) == 4);
static_assert(kPacked<LookupPart> && sizeof(LookupPart) == 8 && offsetof(LookupPart, ids) == 4);
static_assert(kPacked<LookupReply> && sizeof(LookupReply) == 32 && offsetof(LookupReply, checksum) == 8 &&
              offsetof(LookupReply, gather_ns) == 16);
static_assert(kPacked<StatsReply> && sizeof(StatsReply) == 8);

// Where the first plane of a LOOKUP's reply begins.
inline constexpr std::size_t kHeadBytes = sizeof(Header) + sizeof(LookupReply);
static_assert(kHeadBytes == kPlaneAlignment);

template <typename Record>
Record load(const std::byte* from) noexcept {
  static_assert(std::is_trivially_copyable_v<Record>);
  Record record;
  std::memcpy(&record, from, sizeof record);
  return record;
}

template <typename Record>
void store(const Record& record, std::byte* to) noexcept {
  static_assert(kPacked<Record>);
  std::memcpy(to, &record, sizeof record);
}

// Bytes of one plane with the zeros that follow it.
constexpr std::size_t plane_bytes(std::size_t rows, std::size_t width) noexcept {
  return (rows * width + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
}

// Bytes of one part of a reply: its values plane, then its scales plane.
constexpr std::size_t part_bytes(std::size_t rows, std::size_t columns, std::size_t scales) noexcept {
  return plane_bytes(rows, columns) + plane_bytes(rows, scales);
}

// Most bytes of a reply with that many rows over that many parts, however they are spread.
constexpr std::size_t reply_bytes_max(std::size_t rows, std::size_t parts, std::size_t columns,
                                      std::size_t scales) noexcept {
  return kHeadBytes + rows * (columns + scales) + 2 * parts * kPlaneAlignment;
}

constexpr Header make_header(Op op, Kind kind, Code code, std::uint64_t batch, std::size_t body_bytes) noexcept {
  return {.magic = kMagic,
          .version = kVersion,
          .op = static_cast<std::uint8_t>(op),
          .kind = static_cast<std::uint8_t>(kind),
          .status = static_cast<std::uint16_t>(code),
          .reserved0 = 0,
          .reserved1 = 0,
          .batch = batch,
          .body_bytes = static_cast<std::uint32_t>(body_bytes),
          .reserved2 = 0};
}

}  // namespace engram::wire
