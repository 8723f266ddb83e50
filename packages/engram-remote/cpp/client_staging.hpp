// Memory where a lookup's rows land: whose it is, how it is laid out, and the transport's handle of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client_limits.hpp"
#include "engram.h"
#include "ofl_library.hpp"
#include "reader_plan.hpp"
#include "status.hpp"

namespace engram {

// One lookup, whoever asked for it.  What it points to stays until the lookup has ended.
struct ClientLookup {
  std::span<const engram_batch> batches;
  std::uint64_t rows = 0;
};

// Bytes of the body that a lookup's rows make: head, then per batch its planes.
std::size_t body_bytes(std::span<const engram_batch> batches, std::uint32_t columns, std::uint32_t scales) noexcept;

class Staging {
 public:
  // transport: whether a server may write into it.
  static Outcome make(void* base, std::size_t bytes, bool transport, bool bounce, std::unique_ptr<Staging>& staging);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* base() const noexcept { return base_; }
  std::size_t bytes() const noexcept { return bytes_; }
  ofl_buffer* buffer() const noexcept { return buffer_; }

 private:
  Staging(void* base, std::size_t bytes) : base_(static_cast<std::byte*>(base)), bytes_(bytes) {}

  std::byte* const base_;
  const std::size_t bytes_;
  ofl_buffer* buffer_ = nullptr;
};

// Where each batch's planes lie, in order.
class PlaneWalk {
 public:
  PlaneWalk(std::byte* base, std::uint32_t columns, std::uint32_t scales) noexcept
      : at_(base + wire::kHeadBytes), columns_(columns), scales_(scales) {}

  Planes next(std::uint32_t rows) noexcept {
    const Planes planes{at_, at_ + wire::plane_bytes(rows, columns_)};
    at_ += wire::part_bytes(rows, columns_, scales_);
    return planes;
  }

 private:
  std::byte* at_;
  const std::uint32_t columns_;
  const std::uint32_t scales_;
};

// All of a client's, in order of arrival; never taken away before the end.
class Stagings {
 public:
  // The number of the new one; kStagingsMax: there are as many as can be.
  std::size_t add(std::unique_ptr<Staging> staging);
  Staging* at(std::size_t index) const noexcept;  // nullptr: no such one
  std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }

 private:
  std::mutex adding_;
  std::array<std::unique_ptr<Staging>, kStagingsMax> all_;
  std::atomic<std::size_t> count_{0};  // published after the entry
};

}  // namespace engram
