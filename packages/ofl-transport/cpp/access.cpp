#include "access.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include <netinet/in.h>

#include <arpa/inet.h>

#include "wire.hpp"

namespace ofl {

namespace {

constexpr std::size_t kFourAt = 12;  // of the 16 bytes, where an IPv4 address lies
constexpr std::uint32_t kFourBits = 96;
constexpr std::uint32_t kAllBits = 128;

Host four(const void* address) noexcept {
  Host host;
  std::memcpy(host.bytes.data() + kFourAt, address, 4);
  return host;
}

Host six(const in6_addr& address, std::uint32_t scope) noexcept {
  if (IN6_IS_ADDR_V4MAPPED(&address) != 0) return four(address.s6_addr + kFourAt);
  Host host;
  host.six = true;
  std::memcpy(host.bytes.data(), address.s6_addr, host.bytes.size());
  host.scope = scope;
  return host;
}

// True where the first `bits` of both are the same.
bool share_prefix(const Host& one, const Host& other, std::uint32_t bits) noexcept {
  const std::size_t whole = bits / 8;
  if (!std::equal(one.bytes.begin(), one.bytes.begin() + whole, other.bytes.begin())) return false;
  if (bits % 8 == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xFFU << (8 - bits % 8));
  return ((one.bytes[whole] ^ other.bytes[whole]) & mask) == 0;
}

Host prefix_of(const Host& host, std::uint32_t bits) noexcept {
  Host prefix = host;
  for (std::uint32_t bit = bits; bit < kAllBits; ++bit)
    prefix.bytes[bit / 8] = static_cast<std::uint8_t>(prefix.bytes[bit / 8] & ~(0x80U >> (bit % 8)));
  return prefix;
}

std::string text_of(const Host& host) {
  char text[INET6_ADDRSTRLEN] = "?";
  const std::uint8_t* const bytes = host.bytes.data() + (host.six ? 0 : kFourAt);
  ::inet_ntop(host.six ? AF_INET6 : AF_INET, bytes, text, sizeof text);
  return text;
}

// Digits alone: no sign, no space, no netmask.
bool parse_count(std::string_view text, std::uint32_t& count) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size();
}

Outcome wrong(const std::string& rule, const std::string& clause) {
  return failure(OFL_INVALID, "allowed address '" + wire::printable(rule) + "': " + clause);
}

}  // namespace

std::optional<Host> host_of(const Address& address) noexcept {
  if (address.family() == AF_INET) return four(&reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr);
  if (address.family() != AF_INET6) return std::nullopt;
  const auto* const socket = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return six(socket->sin6_addr, socket->sin6_scope_id);
}

Outcome AllowList::parse_rule(const std::string& text, Rule& rule) {
  const std::size_t slash = text.find('/');
  const std::string name = text.substr(0, slash);
  in_addr address_4{};
  in6_addr address_6{};
  // inet_pton would stop at a NUL and take what is before it.
  const bool clean = name.find('\0') == std::string::npos;
  const bool is_4 = clean && ::inet_pton(AF_INET, name.c_str(), &address_4) == 1;
  const bool is_6 = !is_4 && clean && ::inet_pton(AF_INET6, name.c_str(), &address_6) == 1;
  if (!is_4 && !is_6) return wrong(text, "it is no IPv4 or IPv6 address, alone or with /BITS");
  const std::uint32_t longest = is_4 ? 32 : 128;
  std::uint32_t bits = longest;
  if (slash != std::string::npos && (!parse_count(std::string_view(text).substr(slash + 1), bits) || bits > longest))
    return wrong(text, "the bits of its prefix are no number from 0 to " + std::to_string(longest));
  rule.host = is_4 ? four(&address_4) : six(address_6, 0);
  if (is_6 && !rule.host.six && bits < kFourBits)
    return wrong(text, "it covers more than the IPv4 addresses; write the prefix as IPv4 or as IPv6");
  rule.bits = is_4 ? bits + kFourBits : bits;
  const Host prefix = prefix_of(rule.host, rule.bits);
  if (prefix == rule.host) return {};
  const std::string shown = std::to_string(rule.host.six ? rule.bits : rule.bits - kFourBits);
  return wrong(text, "it has bits after the first " + shown + "; write " + text_of(prefix) + "/" + shown + " or " +
                         text_of(rule.host));
}

Outcome AllowList::parse(std::span<const std::string> rules, AllowList& list) {
  if (rules.size() > kRulesMax)
    return failure(OFL_INVALID, std::to_string(rules.size()) + " allowed addresses are more than " +
                                    std::to_string(kRulesMax) + "; use prefixes");
  std::vector<Rule> parsed(rules.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    Outcome outcome = parse_rule(rules[i], parsed[i]);
    if (!outcome) return outcome;
  }
  list.rules_ = std::move(parsed);
  return {};
}

bool AllowList::allows(const Address& peer) const noexcept {
  if (rules_.empty()) return true;
  const std::optional<Host> host = host_of(peer);
  return host && std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
           return rule.host.six == host->six && share_prefix(rule.host, *host, rule.bits);
         });
}

bool FailureLimiter::Record::too_many_at(Nanoseconds now) const noexcept {
  // The slot that the next failure will take holds the oldest of the last five.
  return failures >= kFailuresMax && now - moments[failures % kFailuresMax] <= kWindow;
}

Nanoseconds FailureLimiter::refused_for(const Address& peer, Nanoseconds now) const noexcept {
  const std::optional<Host> host = host_of(peer);
  if (!host) return 0;
  const auto found = records_.find(*host);
  return found == records_.end() ? 0 : std::max<Nanoseconds>(0, found->second.refused_until - now);
}

FailureLimiter::Record& FailureLimiter::record_of(const Host& host) {
  const auto found = records_.find(host);
  if (found != records_.end()) return found->second;
  if (records_.size() >= kHostsMax) {
    const auto older = [](const auto& one, const auto& other) { return one.second.last < other.second.last; };
    records_.erase(std::min_element(records_.begin(), records_.end(), older));
  }
  return records_[host];
}

void FailureLimiter::failed(const Address& peer, Nanoseconds now) {
  const std::optional<Host> host = host_of(peer);
  if (!host) return;
  Record& record = record_of(*host);
  if (now < record.refused_until) return;
  if (record.refusal > 0 && now - record.refused_until >= kProbation) record = Record{};
  record.moments[record.failures % kFailuresMax] = now;
  ++record.failures;
  record.last = now;
  if (record.refusal == 0 && !record.too_many_at(now)) return;
  record.refusal = record.refusal == 0 ? kRefusalMin : std::min(2 * record.refusal, kRefusalMax);
  record.refused_until = now + record.refusal;
}

void FailureLimiter::succeeded(const Address& peer) noexcept {
  if (const std::optional<Host> host = host_of(peer)) records_.erase(*host);
}

}  // namespace ofl
