#include "peer_text.hpp"

#include <algorithm>

namespace engram {

namespace {

// The characters that begin with one range of bytes, by RFC 3629, section 4: after the second byte any continuation follows.
struct Form {
  unsigned first_least, first_most;
  unsigned second_least, second_most;
  std::size_t bytes;
};
constexpr Form kForms[] = {{0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                           {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
                           {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};

bool within(std::byte byte, unsigned least, unsigned most) noexcept {
  const auto value = std::to_integer<unsigned>(byte);
  return value >= least && value <= most;
}

// Bytes of the character that the text begins with; 0: none is there.
std::size_t character_bytes(std::span<const std::byte> text) noexcept {
  for (const Form& form : kForms) {
    if (!within(text[0], form.first_least, form.first_most)) continue;
    if (text.size() < form.bytes) return 0;
    if (form.bytes > 1 && !within(text[1], form.second_least, form.second_most)) return 0;
    for (std::size_t i = 2; i < form.bytes; ++i)
      if (!within(text[i], 0x80, 0xBF)) return 0;
    return form.bytes;
  }
  return 0;
}

// Both sets of control characters, and the separators of lines and paragraphs, U+2028 and U+2029.
bool is_control(std::span<const std::byte> character) noexcept {
  switch (character.size()) {
    case 1: return within(character[0], 0, 0x1F) || within(character[0], 0x7F, 0x7F);
    case 2: return within(character[0], 0xC2, 0xC2) && within(character[1], 0x80, 0x9F);
    case 3: return within(character[0], 0xE2, 0xE2) && within(character[1], 0x80, 0x80) && within(character[2], 0xA8, 0xA9);
    default: return false;
  }
}

}  // namespace

bool is_ascii(std::span<const std::byte> text) noexcept {
  return std::all_of(text.begin(), text.end(), [](std::byte byte) { return within(byte, 0, 0x7F); });
}

bool is_utf8(std::span<const std::byte> text) noexcept {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text = text.subspan(bytes);
  }
  return true;
}

std::string printable(std::span<const std::byte> text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0 || is_control(text.first(bytes))) {
      shown += '?';
    } else {
      shown.append(reinterpret_cast<const char*>(text.data()), bytes);
    }
    text = text.subspan(std::max<std::size_t>(bytes, 1));
  }
  return shown;
}

}  // namespace engram
