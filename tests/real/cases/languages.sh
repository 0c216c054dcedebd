# The HTTP libraries of Go, Java, Node and Python: a document twice, of which the origin is asked once.
mkdir -p "$stage/www/languages" "$stage/code"
for name in go java node python perl; do head -c 300000 /dev/urandom > "$stage/www/languages/$name"; done
age "$stage"/www/languages/*
documents=http://127.0.0.1:$origin_port/languages

cat > "$stage/code/main.go" <<'P'
package main

import ("io"; "net/http"; "net/url"; "os")

func main() {
	proxy, _ := url.Parse(os.Args[1])
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	response, err := client.Get(os.Args[2])
	if err != nil { panic(err) }
	if _, err = io.Copy(os.Stdout, response.Body); err != nil { panic(err) }
}
P
cat > "$stage/code/Main.java" <<'P'
import java.net.*;
import java.net.http.*;

public class Main {
    public static void main(String[] arguments) throws Exception {
        URI proxy = URI.create(arguments[0]);
        var chosen = ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort()));
        var client = HttpClient.newBuilder().proxy(chosen).build();
        var request = HttpRequest.newBuilder(URI.create(arguments[1])).build();
        System.out.write(client.send(request, HttpResponse.BodyHandlers.ofByteArray()).body());
        System.out.flush();
    }
}
P
cat > "$stage/code/main.mjs" <<'P'
import http from "node:http";
const [proxy, target] = process.argv.slice(2).map(argument => new URL(argument));
const options = { host: proxy.hostname, port: proxy.port, path: target.href, headers: { host: target.host } };
http.get(options, response => response.pipe(process.stdout));
P
cat > "$stage/code/main.py" <<'P'
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": sys.argv[1]}))
sys.stdout.buffer.write(opener.open(sys.argv[2], timeout=30).read())
P
cat > "$stage/code/main.pl" <<'P'
use HTTP::Tiny;
my $answer = HTTP::Tiny->new(proxy => $ARGV[0])->get($ARGV[1]);
die "$answer->{status} $answer->{reason}" unless $answer->{success};
binmode STDOUT;
print $answer->{content};
P
(cd "$stage/code" && GO111MODULE=off timeout 300 go build -o go main.go) 2> "$stage/go.build.log"
declare -A programs=(
  [go]="$stage/code/go" [java]="java $stage/code/Main.java" [node]="node $stage/code/main.mjs"
  [python]="python3 $stage/code/main.py" [perl]="perl $stage/code/main.pl"
)
for name in go java node python perl; do
  for turn in first second; do
    # shellcheck disable=SC2086
    timeout 120 ${programs[$name]} "$proxy" "$documents/$name" > "$stage/code/got" 2> "$stage/$name.log"
    verdict "languages: $name, the $turn body is the origin's" cmp -s "$stage/code/got" "$stage/www/languages/$name"
  done
  verdict "languages: $name, one request reached the origin" [ "$(origin_count "^GET /languages/$name ")" -eq 1 ]
done
