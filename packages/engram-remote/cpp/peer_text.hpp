// Text that a peer wrote: whether it is the text that it should be, and as a sentence of ours may repeat it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace engram {

bool is_ascii(std::span<const std::byte> text) noexcept;
bool is_utf8(std::span<const std::byte> text) noexcept;

// Nothing in it begins a line or a control sequence of a terminal: such characters, and what is no UTF-8, become '?'.
std::string printable(std::span<const std::byte> text);

}  // namespace engram
