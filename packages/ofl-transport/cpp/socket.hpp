// Sockets and addresses: the only file that resolves names, connects, binds and listens.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "clock.hpp"
#include "status.hpp"

namespace ofl {

// Owns one descriptor.
class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const noexcept { return storage.ss_family; }
  std::uint16_t port() const noexcept;
  bool wildcard() const noexcept;
  std::string text() const;  // 10.0.0.1:18620 or [fd00::1]:18620
};

// Addresses of a host, waiting for the resolver no longer than the deadline.  Numeric hosts never wait.  A resolver
// that is still stuck then is left behind on its own thread and ends by itself.
Outcome resolve(const std::string& host, std::uint16_t port, Nanoseconds deadline, std::vector<Address>& addresses);

// What ends an attempt to connect before its deadline: that its caller abandons it, or a signal.  After a signal whoever called
// begins anew, once its handlers ran; not before kSlice of a stage, or where signals come again and again no attempt would
// live to see the peer's answer.
class Attempt {
 public:
  // `abandoned`: not 0 once the caller wants no connection any more, written by any thread; nullptr: it never says so.
  explicit Attempt(std::int32_t* abandoned = nullptr) noexcept : abandoned_(abandoned) {}

  void begin_stage() noexcept { begun_ = now_ns(); }
  void signal_came() noexcept { signalled_ = true; }
  bool abandoned() const noexcept {
    return abandoned_ != nullptr && std::atomic_ref(*abandoned_).load(std::memory_order_relaxed) != 0;
  }
  // Looked at after every wait, which takes no longer than kSlice.
  bool ends() const noexcept { return abandoned() || (signalled_ && now_ns() - begun_ >= kSlice); }
  Outcome interrupted() const { return failure(OFL_INTERRUPTED, abandoned() ? "abandoned" : "interrupted by a signal"); }

 private:
  std::int32_t* abandoned_;
  Nanoseconds begun_ = now_ns();
  bool signalled_ = false;
};

// A connected non-blocking socket with TCP_NODELAY, close-on-exec.  Tries the addresses in turn.
Outcome connect_socket(const std::vector<Address>& addresses, const Address* bind, Nanoseconds deadline, UniqueFd& socket,
                       Attempt& attempt);

// A non-blocking listening socket.  Wildcards only with allow_any.
Outcome listen_socket(const Address& address, bool allow_any, UniqueFd& socket, Address& bound);

// The same for names of this host: abstract Unix sockets, which end with their listener.
Outcome connect_name(const std::string& name, Nanoseconds deadline, UniqueFd& socket, const Attempt& attempt);
Outcome listen_name(const std::string& name, UniqueFd& socket);
bool valid_name(const std::string& name) noexcept;

// The process at the other end of a Unix socket, when it connected.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
Credentials peer_credentials(int socket) noexcept;

Address local_address(int socket) noexcept;
Address peer_address(int socket) noexcept;
void set_no_delay(int socket) noexcept;

}  // namespace ofl
