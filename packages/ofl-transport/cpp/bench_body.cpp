// What the bodies of a measurement hold.

#include <algorithm>
#include <cstring>

#include "bench.hpp"

namespace ofl::bench {

namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

// Odd, so that no two of 2^64 numbers share a product.
constexpr std::uint64_t spread(std::uint64_t number) noexcept { return (number + 1) * 0x9E3779B97F4A7C15U; }

void put(std::byte* where, std::uint64_t word, std::size_t bytes) noexcept { std::memcpy(where, &word, bytes); }

std::uint64_t get(const std::byte* where, std::size_t bytes) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, where, bytes);
  return word;
}

// The 8 bytes of the text from any place on.
std::uint64_t text_at(std::size_t place) noexcept {
  const unsigned skip = static_cast<unsigned>(place % kWord) * 8;
  const std::uint64_t first = spread(place / kWord);
  return skip == 0 ? first : first >> skip | spread(place / kWord + 1) << (64 - skip);
}

constexpr std::uint64_t low_bytes(std::uint64_t word, std::size_t bytes) noexcept {
  return bytes >= kWord ? word : word & ((std::uint64_t{1} << (8 * bytes)) - 1);
}

}  // namespace

void mark(std::byte* body, std::size_t bytes, std::uint32_t stamp) noexcept {
  const std::uint64_t word = spread(stamp);
  put(body, word, std::min(bytes, kWord));
  if (bytes > kWord) put(body + bytes - kWord, word, kWord);
}

bool marked(const std::byte* body, std::size_t bytes, std::uint32_t stamp) noexcept {
  const std::uint64_t word = spread(stamp);
  if (bytes > kWord && get(body + bytes - kWord, kWord) != word) return false;
  // Up to 15 bytes the last word, written second, covers a part of the first.
  const std::size_t seen = bytes >= 2 * kWord ? kWord : bytes > kWord ? bytes - kWord : bytes;
  return get(body, seen) == low_bytes(word, seen);
}

void write_text(std::byte* memory, std::size_t bytes) noexcept {
  for (std::size_t place = 0; place < bytes; place += kWord)
    put(memory + place, spread(place / kWord), std::min(kWord, bytes - place));
}

bool is_text(const std::byte* body, std::size_t bytes, std::size_t shift) noexcept {
  const std::size_t seen = std::min(bytes, kWord);
  return get(body, seen) == low_bytes(text_at(shift), seen) &&
         get(body + bytes - seen, seen) == low_bytes(text_at(shift + bytes - seen), seen);
}

}  // namespace ofl::bench
