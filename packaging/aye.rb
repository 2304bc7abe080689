# Homebrew on Linux. Set AYE_BASE_URL's value to where the archives lie.
class Aye < Formula
  desc "Terminal agent that never loses a question"
  homepage ENV.fetch("AYE_BASE_URL")
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_linux do
    on_intel do
      url "#{ENV.fetch("AYE_BASE_URL")}/aye-@VERSION@-x86_64-unknown-linux-gnu.tar.gz"
      sha256 "@SHA256:x86_64-unknown-linux-gnu@"
    end
    on_arm do
      url "#{ENV.fetch("AYE_BASE_URL")}/aye-@VERSION@-aarch64-unknown-linux-gnu.tar.gz"
      sha256 "@SHA256:aarch64-unknown-linux-gnu@"
    end
  end

  def install
    bin.install "bin/aye"
    man1.install "share/man/man1/aye.1"
    bash_completion.install "share/completions/aye.bash" => "aye"
    zsh_completion.install "share/completions/_aye"
    fish_completion.install "share/completions/aye.fish"
  end

  test do
    assert_equal "aye #{version}\n", shell_output("#{bin}/aye --version")
  end
end
