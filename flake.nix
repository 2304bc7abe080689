{
  description = "The terminal agent that never loses a question";
  inputs.nixpkgs.url = "nixpkgs";
  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "aye";
          version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          # The tests want a terminal, git and the network of loopback.
          doCheck = false;
          postInstall = ''
            $out/bin/aye man > aye.1
            installManPage aye.1
            installShellCompletion --cmd aye --bash <($out/bin/aye completion bash) \
              --zsh <($out/bin/aye completion zsh) --fish <($out/bin/aye completion fish)
          '';
        };
      });
    };
}
