#include "auth.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <sys/random.h>

namespace ofl {

namespace {

// The NUL at the end of each is part of it.
constexpr char kClientLabel[] = "ofl client proof";
constexpr char kServerLabel[] = "ofl server proof";
static_assert(sizeof kClientLabel == sizeof kServerLabel);

constexpr const char* kLibraries[] = {"libcrypto.so.3", "libcrypto.so.1.1"};

struct Loaded {
  Libcrypto library;
  Outcome outcome;
};

// What HMAC-SHA-256 gives for the key 20 times 0xAA and the message 50 times 0xDD (RFC 4231, test case 3).
constexpr Mac kKnownMac = {0x77, 0x3E, 0xA9, 0x1E, 0x36, 0x80, 0x0E, 0x46, 0x85, 0x4D, 0xB8,
                           0xEB, 0xD0, 0x91, 0x81, 0xA7, 0x29, 0x59, 0x09, 0x8B, 0x3E, 0xF8,
                           0xC1, 0x22, 0xD9, 0x63, 0x55, 0x14, 0xCE, 0xD5, 0x65, 0xFE};

bool compute(const Libcrypto& library, std::span<const std::uint8_t> key, std::span<const std::uint8_t> message,
             Mac& mac) noexcept {
  mac.fill(0);
  unsigned int bytes = 0;
  const unsigned char* const done = library.hmac(library.sha256, key.data(), static_cast<int>(key.size()),
                                                 message.data(), message.size(), mac.data(), &bytes);
  if (done != nullptr && bytes == mac.size()) return true;
  mac.fill(0);
  return false;
}

const Loaded& loaded() {
  // Never destroyed: a thread may still need it while the process ends.
  static const Loaded* const once = [] {
    auto* fresh = new Loaded;
    fresh->outcome = open_libcrypto(kLibraries, fresh->library);
    return fresh;
  }();
  return *once;
}

// The bodies are of fixed sizes, so that one sequence of bytes has one meaning.
class Transcript {
 public:
  void add(const void* bytes, std::size_t count) noexcept {
    std::memcpy(bytes_.data() + size_, bytes, count);
    size_ += count;
  }
  std::span<const std::uint8_t> bytes() const noexcept { return {bytes_.data(), size_}; }

 private:
  std::array<std::uint8_t, sizeof kServerLabel + sizeof(wire::ConnectBody) + sizeof(wire::ChallengeBody) +
                               sizeof(wire::AcceptBody)>
      bytes_{};
  std::size_t size_ = 0;
};

bool client_mac(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                Mac& mac) noexcept {
  Transcript transcript;
  transcript.add(kClientLabel, sizeof kClientLabel);
  transcript.add(&connect, sizeof connect);
  transcript.add(&challenge, sizeof challenge);
  return !key.empty() && hmac_sha256(key.bytes(), transcript.bytes(), mac);
}

bool server_mac(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                const wire::AcceptBody& accept, Mac& mac) noexcept {
  wire::AcceptBody unproven = accept;
  std::memset(unproven.mac, 0, sizeof unproven.mac);
  Transcript transcript;
  transcript.add(kServerLabel, sizeof kServerLabel);
  transcript.add(&connect, sizeof connect);
  transcript.add(&challenge, sizeof challenge);
  transcript.add(&unproven, sizeof unproven);
  return !key.empty() && hmac_sha256(key.bytes(), transcript.bytes(), mac);
}

bool same(const Mac& expected, const std::uint8_t (&mac)[wire::kMacBytes]) noexcept {
  return loaded().library.compare(expected.data(), mac, expected.size()) == 0;
}

Outcome no_mac(const Key& key) {
  if (key.empty()) return failure(OFL_INVALID, "there is no key to prove");
  Outcome outcome = hmac_available();
  return outcome ? failure(OFL_SYSTEM, "libcrypto did not compute HMAC-SHA-256") : outcome;
}

}  // namespace

bool computes_hmac(const Libcrypto& library) noexcept {
  std::array<std::uint8_t, 20> key;
  std::array<std::uint8_t, 50> message;
  key.fill(0xAA);
  message.fill(0xDD);
  Mac mac;
  return compute(library, key, message, mac) && library.compare(mac.data(), kKnownMac.data(), mac.size()) == 0;
}

Outcome open_libcrypto(std::span<const char* const> names, Libcrypto& library) {
  std::string tried;
  for (const char* name : names) {
    void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const error = ::dlerror();
      tried.append(tried.empty() ? "" : "; ").append(error != nullptr ? error : name);
      continue;
    }
    Libcrypto found;
    found.hmac = reinterpret_cast<decltype(found.hmac)>(::dlsym(handle, "HMAC"));
    found.compare = reinterpret_cast<decltype(found.compare)>(::dlsym(handle, "CRYPTO_memcmp"));
    const auto sha256 = reinterpret_cast<const void* (*)()>(::dlsym(handle, "EVP_sha256"));
    if (found.hmac == nullptr || found.compare == nullptr || sha256 == nullptr) {
      tried.append(tried.empty() ? "" : "; ").append(name).append(" lacks HMAC, CRYPTO_memcmp or EVP_sha256");
      continue;
    }
    found.sha256 = sha256();
    if (!computes_hmac(found))
      return failure(OFL_SYSTEM, std::string(name) + " does not compute HMAC-SHA-256: see that 'openssl sha256 -hmac x "
                                 "/dev/null' works on this host");
    library = found;
    return {};
  }
  return failure(OFL_SYSTEM, "a key needs OpenSSL's libcrypto.so.3 or libcrypto.so.1.1 (Debian package libssl3, or "
                             "libssl3t64 from Debian 13 on), and neither can be loaded: " + tried);
}

Outcome hmac_available() { return loaded().outcome; }

bool hmac_sha256(std::span<const std::uint8_t> key, std::span<const std::uint8_t> message, Mac& mac) noexcept {
  if (loaded().outcome) return compute(loaded().library, key, message, mac);
  mac.fill(0);
  return false;
}

Outcome fill_nonce(std::span<std::uint8_t> nonce) {
  std::size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = ::getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(OFL_SYSTEM, "the kernel gives no random bytes: " + errno_text(errno));
    filled += static_cast<std::size_t>(got);
  }
  return {};
}

Outcome client_proof(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                     wire::ProofBody& proof) {
  Mac mac{};
  if (!client_mac(key, connect, challenge, mac)) return no_mac(key);
  std::memcpy(proof.mac, mac.data(), mac.size());
  return {};
}

bool proves_client(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                   const wire::ProofBody& proof) noexcept {
  Mac expected{};
  return client_mac(key, connect, challenge, expected) && same(expected, proof.mac);
}

Outcome server_proof(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                     wire::AcceptBody& accept) {
  Mac mac{};
  if (!server_mac(key, connect, challenge, accept, mac)) return no_mac(key);
  std::memcpy(accept.mac, mac.data(), mac.size());
  return {};
}

bool proves_server(const Key& key, const wire::ConnectBody& connect, const wire::ChallengeBody& challenge,
                   const wire::AcceptBody& accept) noexcept {
  Mac expected{};
  return server_mac(key, connect, challenge, accept, expected) && same(expected, accept.mac);
}

}  // namespace ofl
