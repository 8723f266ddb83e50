// The shared key of both ends, and the file that it comes from.  Refuses every file that somebody else could have read
// or changed.  Never writes a file, never shows a byte of a key, and leaves no copy of one in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "status.hpp"

namespace ofl {

inline constexpr std::size_t kKeyBytesMin = 32;  // as many as HMAC-SHA-256 gives out
inline constexpr std::size_t kKeyBytesMax = 1024;

// Secret bytes.  Moved, never copied; overwritten when they go.
class Key {
 public:
  Key() noexcept = default;
  // Room for `bytes`, all zero: the caller fills `room` and says with `keep` how many of them are the key.
  explicit Key(std::size_t bytes) : memory_(std::make_unique<std::uint8_t[]>(bytes)), capacity_(bytes) {}
  Key(Key&& other) noexcept
      : memory_(std::move(other.memory_)),
        capacity_(std::exchange(other.capacity_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  Key& operator=(Key&& other) noexcept;
  ~Key() { wipe(); }

  bool empty() const noexcept { return size_ == 0; }
  std::span<const std::uint8_t> bytes() const noexcept { return {memory_.get(), size_}; }
  std::span<std::uint8_t> room() noexcept { return {memory_.get(), capacity_}; }
  void keep(std::size_t bytes) noexcept { size_ = bytes; }

 private:
  void wipe() noexcept;

  std::unique_ptr<std::uint8_t[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

// The key is what the file holds, less one newline at its end.  The file is a regular one (no link), belongs to the
// user of this process or to root, gives no rights to group and others, and holds 32 to 1024 bytes.  A refusal names
// the file, the rule, and the command that repairs it; `key` is then as it was.  `ofl.keys` refuses in the same words.
Outcome load_key(const std::string& path, Key& key);

}  // namespace ofl
