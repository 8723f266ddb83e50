// How the server's epoll set tells its members apart: connections by their id, which is neither 0 nor that large.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ofl {

inline constexpr std::uint64_t kWakeTag = 0;
inline constexpr std::uint64_t kListenerBit = std::uint64_t{1} << 63;

inline constexpr std::uint64_t listener_tag(std::size_t index) noexcept { return kListenerBit | index; }

}  // namespace ofl
