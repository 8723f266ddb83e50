// From a negotiated Unix socket to a channel over shared memory.  The server makes the memory and passes its descriptor;
// both ends close theirs once it is mapped, so nobody else can find it.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "link.hpp"
#include "process.hpp"
#include "shm_channel.hpp"
#include "shm_region.hpp"

namespace ofl {

namespace {

Outcome refuse(std::string text) { return failure(OFL_REFUSED, std::move(text)); }

class ShmLink final : public Link {
 public:
  Outcome open(Role role, int, std::uint32_t frame_bytes_max) override {
    role_ = role;
    ours_ = {choose_ring_bytes(frame_bytes_max), 0};
    return {};
  }

  std::span<const std::byte> ours() const noexcept override { return std::as_bytes(std::span(&ours_, 1)); }

  std::span<const int> descriptors() const noexcept override {
    return memory_.valid() ? std::span<const int>(&passed_, 1) : std::span<const int>();
  }

  Outcome join(std::span<const std::byte> theirs, std::span<UniqueFd> descriptors) override {
    wire::ShmLinkBody told;
    if (theirs.size() != sizeof told) return refuse("body_bytes of the link frame is not 16");
    std::memcpy(&told, theirs.data(), sizeof told);
    return role_ == Role::server ? make(told, descriptors) : attach(told, descriptors);
  }

  Outcome finish(UniqueFd control, std::unique_ptr<Channel>& channel) override {
    channel = std::make_unique<ShmChannel>(std::move(region_), std::move(control), usable_cpus() > 1);
    return {};
  }

 private:
  Outcome make(const wire::ShmLinkBody& wish, std::span<UniqueFd> descriptors) {
    if (!descriptors.empty()) return refuse("descriptors came with the client's link frame");
    if (const char* fault = ring_bytes_fault(wish.ring_bytes)) return refuse(std::string(fault) + " in the link frame");
    if (wish.region_bytes != 0) return refuse("region_bytes in the client's link frame is not 0");
    ours_.ring_bytes = std::max(ours_.ring_bytes, wish.ring_bytes);
    ours_.region_bytes = region_bytes_for(ours_.ring_bytes);
    Outcome outcome = ShmRegion::make(ours_.ring_bytes, region_, memory_);
    passed_ = memory_.get();
    return outcome;
  }

  Outcome attach(const wire::ShmLinkBody& told, std::span<UniqueFd> descriptors) {
    if (descriptors.size() != 1) return refuse("not one descriptor came with the server's link frame");
    return ShmRegion::attach(told, descriptors.front(), region_);
  }

  Role role_ = Role::client;
  wire::ShmLinkBody ours_{};
  ShmRegion region_;
  UniqueFd memory_;
  int passed_ = -1;
};

}  // namespace

std::unique_ptr<Link> make_shm_link() { return std::make_unique<ShmLink>(); }

}  // namespace ofl
