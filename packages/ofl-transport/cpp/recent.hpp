// The connection that was answered last, found again without the table: no lock that another thread waits for, and no
// count of users that is written.  One user at a time; whoever comes meanwhile takes the long way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <sched.h>

namespace ofl {

template <typename Connection>
class Recent {
 public:
  // Nobody else is inside while this lives.
  class Use {
   public:
    explicit Use(Recent& recent) noexcept
        : recent_(recent), inside_(!recent.used_.exchange(true, std::memory_order_acquire)) {}
    ~Use() {
      if (inside_) recent_.used_.store(false, std::memory_order_release);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const noexcept { return inside_; }

    Connection* find(std::uint64_t id) const noexcept {
      return inside_ && recent_.id_ == id ? recent_.connection_.get() : nullptr;
    }
    // The caller knows that the connection is not dropped yet, and that `forget` comes after.
    void keep(std::uint64_t id, std::shared_ptr<Connection> connection) noexcept {
      recent_.connection_.swap(connection);  // dropping a connection forgets it, so this is never its last owner
      recent_.id_ = id;
    }

   private:
    friend class Recent;
    Recent& recent_;
    const bool inside_;
  };

  // Where nobody can be inside any more.
  void clear() noexcept {
    id_ = 0;
    connection_.reset();
  }
  // Waits for a user, who is at most in a send that does not block.
  void forget(std::uint64_t id) noexcept {
    for (;; ::sched_yield()) {
      const Use use(*this);
      if (!use) continue;
      if (id_ == id) clear();
      return;
    }
  }

 private:
  std::atomic<bool> used_{false};
  std::uint64_t id_ = 0;  // of no connection
  std::shared_ptr<Connection> connection_;
};

}  // namespace ofl
