// Who may connect, by address: an allowlist, and a brake on those that keep failing to prove the key.  Pure: no socket,
// no clock (time comes in), no lock, no text of a peer.  Neither is a substitute for a key, because a host on the same
// network can take an address.
//
// An IPv4 peer that an IPv6 socket shows as ::ffff:a.b.c.d counts as the IPv4 peer that it is.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "clock.hpp"
#include "socket.hpp"
#include "status.hpp"

namespace ofl {

// An address without its port, in network order; IPv4 fills the last four bytes and leaves the others zero.
struct Host {
  bool six = false;
  std::array<std::uint8_t, 16> bytes{};
  std::uint32_t scope = 0;  // the interface of a link-local IPv6 address

  auto operator<=>(const Host&) const = default;
};

// Nothing where the address is no IP address (a socket of this host, a peer that was gone before it was asked for).
std::optional<Host> host_of(const Address& address) noexcept;

// Addresses and prefixes, such as 10.0.0.7, 10.0.0.0/24, fd00::/8.  Never changes after `parse`, so any thread may ask.
class AllowList {
 public:
  static constexpr std::size_t kRulesMax = 1024;

  // A refusal names the rule, and `list` is then as it was.
  static Outcome parse(std::span<const std::string> rules, AllowList& list);

  // An empty list allows everybody; another one only peers with an IP address that a rule covers, whatever its scope.
  bool allows(const Address& peer) const noexcept;
  bool empty() const noexcept { return rules_.empty(); }

 private:
  struct Rule {
    Host host;
    std::uint32_t bits = 0;  // of the 16 bytes of `host`: 96 to 128 for IPv4
  };

  static Outcome parse_rule(const std::string& text, Rule& rule);

  std::vector<Rule> rules_;
};

// Five failures of one address within 10 s have it refused for 1 s.  From then on each further failure has it refused
// for twice as long as the last time, up to 60 s, until it succeeds or leaves 60 s after a refusal without a failure.
// Ports do not count; what is no IP address is on this host and never refused.  One thread at a time.
class FailureLimiter {
 public:
  static constexpr std::size_t kFailuresMax = 5;
  static constexpr Nanoseconds kWindow = 10 * kSecond;
  static constexpr Nanoseconds kRefusalMin = kSecond;
  static constexpr Nanoseconds kRefusalMax = 60 * kSecond;
  static constexpr Nanoseconds kProbation = 60 * kSecond;  // after the end of a refusal
  static constexpr std::size_t kHostsMax = 1024;           // the one whose last failure is oldest gives way

  // How long the address is refused from now on; 0: it is not.
  Nanoseconds refused_for(const Address& peer, Nanoseconds now) const noexcept;

  // A failure while the address is refused changes nothing: it was under way before.
  void failed(const Address& peer, Nanoseconds now);
  void succeeded(const Address& peer) noexcept;

  std::size_t hosts() const noexcept { return records_.size(); }

 private:
  struct Record {
    std::array<Nanoseconds, kFailuresMax> moments{};  // a ring
    std::size_t failures = 0;
    Nanoseconds last = 0;           // moment of the last failure
    Nanoseconds refusal = 0;        // span of the last refusal; 0: there was none
    Nanoseconds refused_until = 0;  // moment

    bool too_many_at(Nanoseconds now) const noexcept;
  };

  Record& record_of(const Host& host);

  std::map<Host, Record> records_;
};

}  // namespace ofl
