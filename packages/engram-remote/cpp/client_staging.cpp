#include "client_staging.hpp"

#include <utility>

namespace engram {

std::size_t body_bytes(std::span<const engram_batch> batches, std::uint32_t columns, std::uint32_t scales) noexcept {
  std::size_t bytes = wire::kHeadBytes;
  for (const engram_batch& batch : batches) bytes += wire::part_bytes(batch.count, columns, scales);
  return bytes;
}

Outcome Staging::make(void* base, std::size_t bytes, bool transport, bool bounce, std::unique_ptr<Staging>& staging) {
  if (base == nullptr) return failure(ENGRAM_INVALID, "base of a staging must be given");
  if (reinterpret_cast<std::uintptr_t>(base) % wire::kPlaneAlignment != 0)
    return failure(ENGRAM_INVALID, "base of a staging must be a multiple of " + std::to_string(wire::kPlaneAlignment));
  if (bytes < kStagingBytesMin)
    return failure(ENGRAM_INVALID, "bytes of a staging must be at least " + std::to_string(kStagingBytesMin) + ", not " +
                                       std::to_string(bytes));
  std::unique_ptr<Staging> made(new Staging(base, bytes));
  if (transport) {
    char text[512] = "";
    const auto flags = static_cast<std::uint32_t>(bounce ? OFL_BUFFER_BOUNCE : 0);
    if (ofl().buffer_create(base, bytes, flags, &made->buffer_, text, sizeof text) != OFL_OK)
      return failure(ENGRAM_SYSTEM, text);
  }
  staging = std::move(made);
  return {};
}

Staging::~Staging() {
  if (buffer_ != nullptr) ofl().buffer_free(buffer_);
}

std::size_t Stagings::add(std::unique_ptr<Staging> staging) {
  const std::scoped_lock lock(adding_);
  const std::size_t index = count_.load(std::memory_order_relaxed);
  if (index == kStagingsMax) return kStagingsMax;
  all_[index] = std::move(staging);
  count_.store(index + 1, std::memory_order_release);  // pairs with count
  return index;
}

Staging* Stagings::at(std::size_t index) const noexcept { return index < count() ? all_[index].get() : nullptr; }

}  // namespace engram
