// Memory that a user shares with the library: replies are placed into it, and parts that lie in it are sent without a
// copy.  Owns the registrations with devices, and knows which stretches belong to calls; never decides when a call gives its
// stretch back (client, server do).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "status.hpp"

namespace ofl {

// One registration of a stretch of memory with one device.  Ends with the object: after that no peer can reach it.
class Registration {
 public:
  virtual ~Registration() = default;
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  virtual std::uint32_t local_key() const noexcept = 0;
  virtual std::uint32_t remote_key() const noexcept = 0;
};

// What registers memory: a device's protection domain.  Lives as long as the process.
class Registrar {
 public:
  // For local access and for remote writes.  The text of a failure names the limit and how to raise it.
  virtual Outcome add(std::span<std::byte> memory, std::unique_ptr<Registration>& registration) = 0;

 protected:
  ~Registrar() = default;
};

// What a wire whose receiving CPU places registers memory with.  Nothing is pinned; but memory that nobody registered is
// refused on every wire, and not first where there is a device.
Registrar& host_registrar() noexcept;

// Where the reply to one call may land.  Linked into its Memory from `claim` to `release`, and in its place meanwhile.
class Claim {
 public:
  Claim() noexcept = default;
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  friend class Memory;
  const std::atomic<bool>* lost_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;  // 0: not linked
  bool quarantined_ = false;
  Claim* before_ = nullptr;
  Claim* after_ = nullptr;
};

class Memory : public std::enable_shared_from_this<Memory> {
 public:
  // Of exactly so many bytes.  base nullptr: the library allocates them, on pages of their own.  bounce: peers write into a
  // twin of the library's, and a reply is copied from there when it is waited for.
  static Outcome create(std::byte* base, std::size_t bytes, bool bounce, std::shared_ptr<Memory>& memory);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<std::byte> bytes() const noexcept { return user_; }
  // Where peers write: the memory itself, or its twin.
  std::span<std::byte> landing() const noexcept { return twin_.empty() ? user_ : twin_; }
  bool bounces() const noexcept { return !twin_.empty(); }
  bool contains(const void* base, std::size_t bytes) const noexcept;

  // Registers `landing()` at the first call for a registrar.  Control path.
  Outcome register_with(Registrar& registrar);
  // The registration made before, or nullptr.  Data path: lock-free.
  const Registration* registration(const Registrar& registrar) const noexcept;

  // No two replies may share a byte, whatever connections they come by, nor may one land where a cancelled call's still
  // can: OFL_OVERLAP and OFL_QUARANTINED say so, and nothing is claimed.  `lost` of the connection lives until `release`;
  // once it is true nothing can land any more, and the claim counts no longer.
  Status claim(Claim& claim, const std::atomic<bool>& lost, std::size_t offset, std::size_t bytes) noexcept;
  // The call is over, and a write of the peer may not be.
  void quarantine(Claim& claim) noexcept;
  void release(Claim& claim) noexcept;

  // Sends under way that read the memory.  The channel lends when it posts and gives back at the completion.
  void lend() noexcept { lent_.fetch_add(1, std::memory_order_relaxed); }
  void give_back() noexcept {
    if (lent_.fetch_sub(1, std::memory_order_release) == 1 && waited_for_.load(std::memory_order_acquire)) tell_idle();
  }
  // Until idle, or the moment; may return early.
  void wait_idle(Nanoseconds until) noexcept;
  bool idle() const noexcept { return lent_.load(std::memory_order_acquire) == 0; }

 private:
  static constexpr std::size_t kRegistrarsMax = 9;  // the host itself and its devices

  struct Entry {
    std::atomic<const Registrar*> registrar{nullptr};  // published after `registration`
    std::unique_ptr<Registration> registration;
  };

  void tell_idle() noexcept;

  Memory(std::span<std::byte> user, std::span<std::byte> twin, bool owned) noexcept;
  bool left_to_parent() const noexcept;

  const std::span<std::byte> user_;
  const std::span<std::byte> twin_;
  const bool owned_;
  const std::uint32_t fork_generation_;
  std::mutex mutex_;
  Entry entries_[kRegistrarsMax];
  std::mutex claims_mutex_;  // a leaf: nothing else is locked under it
  Claim* claims_ = nullptr;
  std::atomic<std::uint32_t> lent_{0};  // give_back's release pairs with idle's acquire
  std::atomic<bool> waited_for_{false};
  std::mutex idle_mutex_;
  std::condition_variable became_idle_;
};

}  // namespace ofl
