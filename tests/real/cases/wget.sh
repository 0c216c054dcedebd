# wget: ten documents into two folders; the second time the origin hears nothing.
mkdir -p "$stage/www/wget"
for number in 1 2 3 4 5 6 7 8 9 10; do
  head -c $((number * 20000)) /dev/urandom > "$stage/www/wget/$number.txt"
  echo "http://127.0.0.1:$origin_port/wget/$number.txt"
done > "$stage/wget.urls"
age "$stage"/www/wget/*
for turn in first second; do
  http_proxy=$proxy wget -q -i "$stage/wget.urls" -P "$stage/wget.$turn"
  verdict "wget: $turn ten bodies are the origin's" diff -rq "$stage/www/wget" "$stage/wget.$turn"
  verdict "wget: ten requests reached the origin" [ "$(origin_count '^GET /wget/')" -eq 10 ]
done
