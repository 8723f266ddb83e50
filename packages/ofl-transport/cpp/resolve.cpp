// Name resolution under a deadline.  getaddrinfo has none, so names are looked up on a thread of their own.

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include <netdb.h>

#include "process.hpp"
#include "socket.hpp"

namespace ofl {

namespace {

struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int error = 0;
  std::vector<Address> addresses;
};

int look_up(const std::string& host, std::uint16_t port, int flags, std::vector<Address>& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return error;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.bytes = entry->ai_addrlen;
    addresses.push_back(address);
  }
  return 0;
}

Outcome unresolved(const std::string& host, int error) {
  return failure(OFL_INVALID, "host " + host + " cannot be resolved: " + ::gai_strerror(error));
}

std::chrono::steady_clock::time_point steady(Nanoseconds moment) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(moment));  // the same clock on Linux
}

}  // namespace

Outcome resolve(const std::string& host, std::uint16_t port, Nanoseconds deadline, std::vector<Address>& addresses) {
  if (look_up(host, port, AI_NUMERICHOST, addresses) == 0) return {};
  auto lookup = std::make_shared<Lookup>();
  start_quiet_thread([lookup, host, port] {
    std::vector<Address> found;
    int error = EAI_MEMORY;
    try {
      error = look_up(host, port, AI_ADDRCONFIG, found);
    } catch (...) {  // whoever waits hears of it; nobody catches anything here
    }
    const std::scoped_lock lock(lookup->mutex);
    lookup->error = error;
    lookup->addresses = std::move(found);
    lookup->done = true;
    lookup->changed.notify_all();
  }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->changed.wait_until(lock, steady(deadline), [&] { return lookup->done; }))
    return failure(OFL_DEADLINE, "host " + host + " was not resolved before the deadline");
  if (lookup->error != 0) return unresolved(host, lookup->error);
  addresses = lookup->addresses;
  return {};
}

}  // namespace ofl
