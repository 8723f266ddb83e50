#include <algorithm>
#include <cstring>

#include "driver.hpp"

namespace fuzz {

namespace {

constexpr std::size_t kCutBytes = 8;  // of an input, before its stream

std::size_t below(std::size_t limit, Random& random) { return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit); }

void flip_bit(Input& input, Random& random) {
  input[below(input.size(), random)] ^= static_cast<std::uint8_t>(1U << below(8, random));
}

// A number where fields may lie: 1, 2, 4 or 8 bytes, half of the time at a multiple of that; from the list, from another place,
// or near what is there.
void set_number(Input& input, Random& random) {
  const std::size_t bytes = std::size_t{1} << below(4, random);
  if (input.size() < bytes) return;
  const std::size_t places = input.size() - bytes + 1;
  std::size_t at = below(places, random);
  if (below(2, random) == 0) at = at / bytes * bytes;
  std::uint64_t number = 0;
  std::memcpy(&number, input.data() + at, bytes);
  switch (below(3, random)) {
    case 0: number = format().numbers[below(format().numbers.size(), random)]; break;
    case 1: std::memcpy(&number, input.data() + below(places, random) / bytes * bytes, bytes); break;
    default: number += below(64, random) - 32; break;
  }
  std::memcpy(input.data() + at, &number, bytes);
}

void erase_block(Input& input, Random& random) {
  if (input.size() <= kCutBytes + 1) return;
  const std::size_t at = kCutBytes + below(input.size() - kCutBytes, random);
  const std::size_t bytes = std::min(1 + below(below(2, random) == 0 ? 64 : 20'000, random), input.size() - at);
  input.erase(input.begin() + static_cast<std::ptrdiff_t>(at), input.begin() + static_cast<std::ptrdiff_t>(at + bytes));
}

void copy_block(Input& input, const Input& from, Random& random) {
  if (from.empty()) return;
  const std::size_t first = below(from.size(), random);
  const std::size_t bytes = std::min(1 + below(below(2, random) == 0 ? 64 : 20'000, random), from.size() - first);
  const Input block(from.begin() + static_cast<std::ptrdiff_t>(first),
                    from.begin() + static_cast<std::ptrdiff_t>(first + bytes));
  const std::size_t at = std::min(kCutBytes + below(input.size(), random), input.size());
  input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), block.begin(), block.end());
}

// The places where a header seems to lie.
std::vector<std::size_t> headers(const Input& input) {
  std::vector<std::size_t> places;
  for (std::size_t at = kCutBytes; at + format().header_bytes <= input.size(); ++at) {
    std::uint32_t magic = 0;
    std::memcpy(&magic, input.data() + at, sizeof magic);
    if (magic == format().magic) places.push_back(at);
  }
  return places;
}

// A sound message where one begins, or at the end.
void insert_message(Input& input, Random& random) {
  const std::vector<std::size_t> places = headers(input);
  const std::size_t at = places.empty() || below(3, random) == 0 ? input.size() : places[below(places.size(), random)];
  const Input message = format().message(random);
  input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), message.begin(), message.end());
}

// One field of one header, with everything around it left sound.
void change_header(Input& input, Random& random) {
  const std::vector<std::size_t> places = headers(input);
  if (places.empty()) return flip_bit(input, random);
  const std::size_t at = places[below(places.size(), random)] + below(format().header_bytes, random);
  switch (below(3, random)) {
    case 0: input[at] ^= static_cast<std::uint8_t>(1U << below(8, random)); break;
    case 1: input[at] = static_cast<std::uint8_t>(format().numbers[below(format().numbers.size(), random)]); break;
    default: input[at] = static_cast<std::uint8_t>(random()); break;
  }
}

void change_once(Input& input, const Input& other, Random& random) {
  switch (below(9, random)) {
    case 0: return flip_bit(input, random);
    case 1: return set_number(input, random);
    case 2: return erase_block(input, random);
    case 3: return copy_block(input, input, random);
    case 4: return copy_block(input, other, random);
    case 5: return insert_message(input, random);
    case 6: return change_header(input, random);
    case 7: {  // cut elsewhere
      const std::uint64_t cut = random();
      std::memcpy(input.data(), &cut, kCutBytes);
      return;
    }
    default: return input.resize(kCutBytes + below(input.size() - kCutBytes + 1, random));
  }
}

}  // namespace

Input mutated(const Input& input, const Input& other, std::size_t bytes_max, Random& random) {
  Input changed = input;
  for (std::size_t left = std::size_t{1} << below(4, random); left > 0; --left) {
    if (changed.size() < kCutBytes) changed.resize(kCutBytes);
    change_once(changed, other, random);
  }
  if (changed.size() > bytes_max) changed.resize(bytes_max);
  return changed;
}

}  // namespace fuzz
