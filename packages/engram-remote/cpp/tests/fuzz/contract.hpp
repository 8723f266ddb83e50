// The rules of docs/contract/engram-v1.md, written apart from the library for a judge of it: offsets, limits and names are
// the document's, and no header of the library is read here.
//
// A judge and no parser: it says all that is wrong with a message, in no order, and the library must name one of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace contract {

using Bytes = std::span<const std::byte>;

// What is at fault, as the document spells it; empty: the message is sound.
using Fields = std::set<std::string>;

inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::size_t kOpenBytes = 56;
inline constexpr std::size_t kOpenLayerBytes = 24;
inline constexpr std::size_t kOpenReplyBytes = 48;
inline constexpr std::size_t kLookupBytes = 8;
inline constexpr std::size_t kLookupPartBytes = 8;
inline constexpr std::size_t kLookupReplyBytes = 32;
inline constexpr std::size_t kRefusalBytes = 8;
inline constexpr std::uint32_t kNoRow = 4294967295;

enum Op : std::uint8_t { kUnreadable = 0, kOpen = 1, kLookup = 2, kStats = 3 };
enum Status : std::uint16_t { kOk = 0, kBadMessage = 1, kVersion = 2, kBadId = 7, kDraining = 9 };

template <typename Number>
Number number(Bytes bytes, std::size_t at) {
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// A header: at least 32 bytes.
inline std::uint8_t op_of(Bytes message) { return number<std::uint8_t>(message, 6); }
inline std::uint16_t status_of(Bytes message) { return number<std::uint16_t>(message, 8); }
inline std::uint64_t batch_of(Bytes message) { return number<std::uint64_t>(message, 16); }

Fields request_header(Bytes message);
Fields open(Bytes body);
Fields lookup(Bytes body);
Fields stats(Bytes body);
// All of it: header, and the body of its operation where the header is sound.
Fields request(Bytes message);

// Operation and batch that a refusal of the message must say.
struct Address {
  std::uint8_t op;
  std::uint64_t batch;
};
Address address(Bytes message);

// A whole reply that carries a refusal.
Fields refusal(Bytes message);
struct Refusal {
  std::string field;
  std::string detail;
};
Refusal refusal_of(Bytes sound);

enum class Answer {
  sound,    // what was asked for
  refused,  // a refusal, and a sound one
  broken,   // breaks the contract
  changed   // its checksum does not fit
};

struct OpenAsked {
  std::uint64_t batch;
  std::vector<std::byte> identity;
  std::uint32_t batch_rows_max;
};
Answer open_answer(Bytes reply, const OpenAsked& asked);

struct LookupAsked {
  std::uint64_t batch;
  std::uint32_t flags;
  std::uint32_t columns;
  std::uint32_t scales;
  std::vector<std::uint32_t> rows;  // of each part
};
// sum: XXH3 of the planes, seeded with what was asked; the one thing that is not computed here.
Answer lookup_answer(Bytes reply, const LookupAsked& asked, std::uint64_t (*sum)(Bytes planes, std::uint64_t seed),
                     std::uint64_t seed);

// Bytes of a plane with its zeros.
constexpr std::size_t plane(std::size_t rows, std::size_t width) {
  std::size_t bytes = rows * width;
  while (bytes % 64 != 0) ++bytes;
  return bytes;
}
std::size_t reply_bytes(const LookupAsked& asked);

bool is_utf8(Bytes text);
// Whether a log or a terminal shows it as one line: no control character, of either set, and no separator of lines.
bool is_one_line(Bytes text);

}  // namespace contract
