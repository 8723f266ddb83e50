#include "memory.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>

#include <sys/mman.h>

#include "process.hpp"

namespace ofl {

namespace {

// Pages of its own, of which the last one's rest is nobody's: a peer that could reach it would write past what was asked
// for.
std::span<std::byte> map_pages(std::size_t bytes) noexcept {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return {};
  return {static_cast<std::byte*>(base), bytes};
}

void unmap_pages(std::span<std::byte> pages) noexcept {
  if (!pages.empty()) ::munmap(pages.data(), pages.size());
}

Outcome no_memory(std::size_t bytes) {
  return failure(OFL_SYSTEM, "cannot allocate a buffer of " + std::to_string(bytes) + " bytes: " + errno_text(errno));
}

class HostRegistration final : public Registration {
 public:
  std::uint32_t local_key() const noexcept override { return 0; }
  std::uint32_t remote_key() const noexcept override { return 0; }
};

class HostRegistrar final : public Registrar {
 public:
  Outcome add(std::span<std::byte> memory, std::unique_ptr<Registration>& registration) override {
    static_cast<void>(memory);
    registration = std::make_unique<HostRegistration>();
    return {};
  }
};

}  // namespace

Registrar& host_registrar() noexcept {
  static HostRegistrar host;
  return host;
}

Outcome Memory::create(std::byte* base, std::size_t bytes, bool bounce, std::shared_ptr<Memory>& memory) {
  if (bytes == 0) return failure(OFL_INVALID, "a buffer must have at least one byte");
  const bool owned = base == nullptr;
  const std::span<std::byte> user = owned ? map_pages(bytes) : std::span<std::byte>(base, bytes);
  if (user.empty()) return no_memory(bytes);
  const std::span<std::byte> twin = bounce ? map_pages(bytes) : std::span<std::byte>();
  if (bounce && twin.empty()) {
    Outcome outcome = no_memory(bytes);
    if (owned) unmap_pages(user);
    return outcome;
  }
  memory.reset(new Memory(user, twin, owned));
  return {};
}

Memory::Memory(std::span<std::byte> user, std::span<std::byte> twin, bool owned) noexcept
    : user_(user), twin_(twin), owned_(owned), fork_generation_(fork_generation()) {}

Memory::~Memory() {
  const bool absent = left_to_parent();
  for (Entry& entry : entries_) entry.registration.reset();  // before the pages go
  if (absent) return;
  unmap_pages(twin_);
  if (owned_) unmap_pages(user_);
}

// What a device knows may be absent in a child of fork(), where something of the child's lies in its place by now.
bool Memory::left_to_parent() const noexcept {
  if (fork_generation_ == fork_generation()) return false;
  return std::any_of(std::begin(entries_), std::end(entries_), [](const Entry& entry) {
    const Registrar* const owner = entry.registrar.load(std::memory_order_relaxed);
    return owner != nullptr && owner != &host_registrar();
  });
}

bool Memory::contains(const void* base, std::size_t bytes) const noexcept {
  const auto* first = static_cast<const std::byte*>(base);
  if (first < user_.data() || bytes > user_.size()) return false;
  return static_cast<std::size_t>(first - user_.data()) <= user_.size() - bytes;
}

Outcome Memory::register_with(Registrar& registrar) {
  const std::scoped_lock lock(mutex_);
  for (Entry& entry : entries_) {
    const Registrar* owner = entry.registrar.load(std::memory_order_relaxed);
    if (owner == &registrar) return {};
    if (owner != nullptr) continue;
    Outcome outcome = registrar.add(landing(), entry.registration);
    if (outcome) entry.registrar.store(&registrar, std::memory_order_release);  // pairs with `registration`
    return outcome;
  }
  return failure(OFL_LIMIT, "a buffer can be registered with at most 8 devices");
}

Status Memory::claim(Claim& claim, const std::atomic<bool>& lost, std::size_t offset, std::size_t bytes) noexcept {
  if (bytes == 0) return OFL_OK;  // nothing can land there
  const std::scoped_lock lock(claims_mutex_);
  for (const Claim* other = claims_; other != nullptr; other = other->after_) {
    if (offset >= other->offset_ + other->bytes_ || other->offset_ >= offset + bytes) continue;
    if (other->lost_->load(std::memory_order_acquire)) continue;  // pairs with Client::lose, which cuts the wire first
    return other->quarantined_ ? OFL_QUARANTINED : OFL_OVERLAP;
  }
  claim.lost_ = &lost;
  claim.offset_ = offset;
  claim.bytes_ = bytes;
  claim.quarantined_ = false;
  claim.before_ = nullptr;
  claim.after_ = claims_;
  if (claims_ != nullptr) claims_->before_ = &claim;
  claims_ = &claim;
  return OFL_OK;
}

void Memory::quarantine(Claim& claim) noexcept {
  const std::scoped_lock lock(claims_mutex_);
  claim.quarantined_ = true;
}

void Memory::release(Claim& claim) noexcept {
  if (claim.bytes_ == 0) return;
  const std::scoped_lock lock(claims_mutex_);
  (claim.before_ != nullptr ? claim.before_->after_ : claims_) = claim.after_;
  if (claim.after_ != nullptr) claim.after_->before_ = claim.before_;
  claim.bytes_ = 0;
}

void Memory::tell_idle() noexcept {
  const std::scoped_lock lock(idle_mutex_);
  became_idle_.notify_all();
}

void Memory::wait_idle(Nanoseconds until) noexcept {
  std::unique_lock lock(idle_mutex_);
  waited_for_.store(true, std::memory_order_release);  // pairs with give_back; a notification missed costs until `until`
  if (!idle()) became_idle_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)));
  waited_for_.store(false, std::memory_order_relaxed);
}

const Registration* Memory::registration(const Registrar& registrar) const noexcept {
  for (const Entry& entry : entries_) {
    const Registrar* owner = entry.registrar.load(std::memory_order_acquire);  // pairs with register_with
    if (owner == &registrar) return entry.registration.get();
    if (owner == nullptr) return nullptr;
  }
  return nullptr;
}

}  // namespace ofl
